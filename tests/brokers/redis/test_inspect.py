"""inspect: the keys of a store in Redis, legibly."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from penstock.broker.values import Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.brokers import open_broker, store_key, store_keys
from penstock.brokers.redis import inspecting
from penstock.cli.root import root
from penstock.errors import Refused
from penstock.flows.flow import Flow, Member, Node
from penstock.job import Job, Unique, succeeded
from penstock.rules.rule import Rule, RuleKind


@pytest.fixture
def store(redis_store_url):
    """A store with something under nearly every kind of key."""
    broker = open_broker(redis_store_url)
    worker = WorkerRow(id="w", tasks={"t": 1})
    done, running = Job(task="t"), Job(task="t", key="k", queue="mail")
    broker.enqueue([done, running])
    [jobs] = broker.claim([Wanted(worker, 2)]).jobs
    broker.note(jobs[0], Note("snapshot", value=b"1"))
    broker.settle([(job, succeeded(b"1")) for job in jobs if job.id == done.id])
    secret = b'{"args":{"card":"4242"},"secret":["card"]}'
    broker.enqueue([Job(task="t", body=secret, unique=Unique("u"), tags={"a": "b"}, run_at=9e9)])
    last = Job(task="last")
    body = b'{"args":{},"flow":{"at":"%s"}}' % Member.of(last.id, last.id).at.encode()
    node = Node(id=last.id, task=last.task, members=((last.id, 1),))
    flow = Flow(id=last.id, nodes=(node,), name="f", find={"p": 1})
    broker.enqueue([Job(task=last.task, id=last.id, body=body)], flow=flow)
    broker.put(Rule(RuleKind.PAUSE, "paused"))
    broker.gauge()
    yield broker, redis_store_url, done
    broker.close()


def test_every_key_that_a_store_makes_is_known_and_can_be_read(store):
    broker, url, _ = store

    families = store_keys(url)

    names = {family.name.rstrip(":") for family in families}
    assert {"j", "q", "z", "h", "sent", "u", "flows", "held", "x", "rules"} <= names
    assert names <= inspecting._FAMILIES.keys()
    start = len(broker.server.prefix)
    for key in broker.server.call("KEYS", f"{broker.server.prefix}*"):
        raw = key[start:]
        name = f"sent:{raw[5:].hex()}" if raw.startswith(b"sent:") else raw.decode()
        content = store_key(url, name.replace("\n", "\\n"), 100)
        assert content.members == max(len(content.shown), 1)
        assert json.dumps(content.shown)


def test_a_row_is_shown_in_clear_text_without_its_secrets(store):
    _, url, done = store

    rows = store_key(url, "j", 100).shown

    [ended] = [row for row in rows if row["id"] == done.id]
    assert (ended["task"], ended["state"], ended["result"]) == ("t", "succeeded", "1")
    assert "4242" not in json.dumps(rows)
    [tally] = [row for row in store_key(url, "t", 9).shown if row["member"]["queue"] == "mail"]
    assert tally == {"member": {"queue": "mail", "task": "t", "state": "running"}, "value": "1"}


def test_the_command_shows_the_store_and_one_key(store):
    _, url, _ = store
    url += "&durability=none" if "?" in url else "?durability=none"

    whole = CliRunner().invoke(root, ["inspect", url, "--json"])
    text = CliRunner().invoke(root, ["inspect", url])
    one = CliRunner().invoke(root, ["inspect", url, "--key", "rv"])
    none = CliRunner().invoke(root, ["inspect", url, "--key", "nothing"])

    found = json.loads(whole.stdout)
    assert [rule["queue"] for rule in found["rules"]] == ["paused"]
    assert {each["name"] for each in found["keys"]} >= {"j", "h"}
    assert "a row for each job" in text.stdout
    assert one.stdout == '"1"\n'
    assert none.exit_code == 2
    assert "there is no key 'nothing'" in none.stderr


def test_a_store_without_keys_is_shown_too(tmp_path):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    broker = open_broker(url)
    broker.enqueue([Job(task="t")])
    broker.close()

    result = CliRunner().invoke(root, ["inspect", url, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)

    assert (found["kind"], found["keys"]) == ("sqlite", [])
    assert [job["task"] for job in found["newest"]] == ["t"]
    with pytest.raises(Refused, match="has no keys: they are of a store in Redis"):
        store_key(url, "j", 1)
