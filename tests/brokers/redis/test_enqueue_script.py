"""The script by which programs in other languages enqueue: what it stores is what Python stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.brokers import redis as package
from penstock.brokers.redis.errors import CommandFailed
from penstock.enqueue.ids import Ids, time_of
from penstock.job import Job, State, succeeded
from penstock.testing.clock import Clock

TEXT = (Path(package.__file__).parent / "lua" / "enqueue.lua").read_text(encoding="utf-8")


@pytest.fixture
def store(redis_store_url):
    broker = open_broker(redis_store_url)
    yield broker
    broker.close()


def enqueue(broker, task, args, **options):
    server = broker.server
    words = (task, json.dumps(args), json.dumps(options))
    id, new = server.call("EVAL", TEXT, 1, server.prefix, *words)
    return id.decode(), bool(new)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("mail:send", {}),
        ("mail:send", {"queue": "mail/x-1.a", "priority": -3, "version": 2, "app": "shop"}),
        ("x" * 200, {"queue": "y" * 55, "priority": 100}),
    ],
)
def test_a_job_of_the_script_is_in_the_lane_of_those_of_python(store, task, options):
    id, new = enqueue(store, task, {"to": "ada", "n": [1, 2.5, None]}, **options)
    ours = Job(task=task, body=b'{"args":{"to":"ada"}}', **options)
    store.enqueue([ours])

    job, python = store.get(id), store.get(ours.id)

    assert new
    assert job.lane == python.lane
    assert json.loads(job.body) == {"args": {"to": "ada", "n": [1, 2.5, None]}}
    assert (job.state, job.run_at) == (State.READY, None)
    assert job.enqueued_at == pytest.approx(python.enqueued_at, abs=5)
    assert store.server.call("HLEN", store.server.key("lanes")) == 1
    worker = WorkerRow(id="w", tasks={task: 9}, app=options.get("app", ""))
    [claimed] = store.claim([Wanted(worker, 9)]).jobs
    assert [each.id for each in claimed] == [id, ours.id]
    assert store.settle([(each, succeeded()) for each in claimed]) == [True, True]


def test_an_id_of_its_own_is_stored_once_and_a_delay_is_kept(store):
    mine = Ids().first()

    first = enqueue(store, "t", {}, id=mine, delay=60, headers={"tenant": "a"})
    again = enqueue(store, "t", {"n": 2}, id=mine)
    store.enqueue([Job(task="t", id=mine)])

    assert (first, again) == ((mine, True), (mine, False))
    job = store.get(mine)
    assert job.run_at == pytest.approx(time_of(mine) + 60, abs=5)
    assert json.loads(job.body) == {"args": {}, "headers": {"tenant": "a"}}
    assert store.count()[0].scheduled == 1


def test_ids_that_the_script_makes_differ_and_are_in_order(store):
    ids = [enqueue(store, "t", {})[0] for _ in range(200)]

    assert len(set(ids)) == 200
    assert ids == sorted(ids, key=time_of)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("t", "[1]"), "the arguments are no JSON object"),
        (("t", "{"), "the arguments are no JSON object"),
        (("t", "{}", '{"queu": "a"}'), "option queu is not known"),
        (("t", "{}", '{"delay": "a"}'), "option delay is not known, or of another type"),
        (("t", "{}", '{"priority": 101}'), "priority goes from -100 to 100"),
        (("a\nb", "{}"), "a name has 1 to 200 letters"),
        (("t", "{}", '{"queue": "\xe9"}'), "a name has 1 to 200 letters"),
        (("/etc/x.py:f", "{}"), "the task is a path"),
        (("t", "{}", '{"id": "7"}'), "id is no UUIDv7"),
        (("t", "{}", json.dumps({"id": Ids(Clock(1.7e9)).first()})), "longer ago than ids are"),
        (("t", json.dumps({"a": "x" * 2**18})), "larger than 256 KiB"),
    ],
)
def test_what_could_not_run_is_refused_and_nothing_is_stored(store, words, says):
    with pytest.raises(CommandFailed, match=says):
        store.server.call("EVAL", TEXT, 1, store.server.prefix, *words)

    assert store.count() == []


def test_without_a_store_nothing_is_made(store):
    with pytest.raises(CommandFailed, match="there is no store behind"):
        store.server.call("EVAL", TEXT, 1, "{other}:", "t", "{}")
    store.traits.mark_sealed("shop")
    with pytest.raises(CommandFailed, match="its app encrypts its jobs"):
        enqueue(store, "t", {}, app="shop")
    store.server.call("SET", store.server.key("lock"), "x")
    with pytest.raises(Exception, match="TRYAGAIN"):
        enqueue(store, "t", {})
