"""find, why, count, history: what is there, and nothing is made by looking."""

from __future__ import annotations

import json
import signal
import sqlite3

import pytest

from penstock.brokers import open_broker
from penstock.enqueue.ids import derived_id


@pytest.fixture
def stocked(shop):
    """Two that ended, one that failed, two that wait."""
    shop("run", "shop:add", "1", "2")
    shop("run", "shop:add", "3", "4")
    shop("run", "shop:charge", "4242", code=1)
    shop("enqueue", "shop:send", "ada", "--tag", "tenant=a")
    shop("enqueue", "shop:send", "bob", "--delay", "1h")
    return shop


@pytest.mark.parametrize(
    "words", [["find"], ["why", "0" * 32], ["count"], ["history"], ["pause", "mail"], ["doctor"],
              ["retry", "state:failed"], ["migrate", "status"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_looking_makes_no_store(cli, words):
    result = cli(*words, code=1 if words[0] == "doctor" else 2)

    assert "there is no store at" in result.output
    assert "--url" in result.output
    assert [path.name for path in cli.folder.iterdir()] == ["pyproject.toml"]


def test_a_newer_schema_is_refused_with_a_sentence(stocked):
    connection = sqlite3.connect(stocked.folder / "penstock.db")
    connection.execute("update penstock_meta set value = '999' where name = 'schema'")
    connection.commit()
    connection.close()

    for words in (["find"], ["run", "shop:add", "1", "2"], ["migrate", "status"]):
        said = stocked(*words, code=2).stderr
        assert "has schema 999" in said
        assert "upgrade Penstock here" in said
        assert "Traceback" not in said
    assert "upgrade Penstock here" in stocked("doctor", code=1).stdout


def test_a_file_that_is_no_store_is_refused(cli):
    (cli.folder / "penstock.db").write_text("not a database, but long enough to look at" * 50)

    assert "cannot be used as a store" in cli("find", code=2).stderr


def test_find_shows_jobs_newest_first(stocked):
    jobs = stocked.lines("find")

    assert [job["args"] for job in jobs] == [
        {"to": "bob"},
        {"to": "ada"},
        {"card": "***"},
        {"a": 3, "b": 4},
        {"a": 1, "b": 2},
    ]
    text = stocked("find").stdout
    assert [line.split()[0] for line in text.splitlines()[1:]] == [job["id"] for job in jobs]
    assert "4242" not in text


def test_find_by_filter_and_with_exclusions(stocked):
    def found(*words):
        return [job["task"] for job in stocked.lines("find", *words)]

    assert found("state:failed") == ["shop:charge"]
    assert found("tag.tenant:a") == ["shop:send"]
    assert found("-task:shop:add", "-task:shop:send") == ["shop:charge"]
    assert found("arg.a:3") == ["shop:add"]
    assert "no such state" in stocked("find", "state:done", code=2).stderr
    assert "is not a filter" in stocked("find", "failed", code=2).stderr
    assert "no such option" in stocked("find", "--stat", code=2).stderr
    assert "no job matches" in stocked("find", "task:nobody").stderr


def test_find_goes_on_where_it_stopped(stocked):
    first = stocked("find", "--limit", "2")
    after = first.stderr.split("--after ")[1].strip()

    rest = stocked.lines("find", "--after", after)

    assert [job["task"] for job in rest] == ["shop:charge", "shop:add", "shop:add"]


def test_find_goes_on_below_a_job_whose_id_holds_no_time(stocked):
    derived = derived_id("test")
    stocked("enqueue", "shop:send", "eve", "--id", derived)
    stocked("enqueue", "shop:send", "joe")
    everything = [job["id"] for job in stocked.lines("find")]
    assert everything[1] == derived

    said = stocked("find", "--limit", "2").stderr.split("--after ")[1].strip()

    for place in (said, derived):
        assert [job["id"] for job in stocked.lines("find", "--after", place)] == everything[2:]
    unknown = stocked("find", "--after", derived_id("nobody"), code=2).stderr
    assert "no place to go on from" in " ".join(unknown.split())


def test_why_answers_in_a_sentence(stocked):
    [failed] = stocked.lines("find", "state:failed")
    [waiting] = stocked.lines("find", "tag.tenant:a")

    assert "RuntimeError: no money" in stocked("why", failed["id"]).stdout
    answer = stocked.json("why", waiting["id"])
    assert answer["cause"] == "no_worker"
    assert answer["job"]["args"] == {"to": "ada"}
    unknown = stocked("why", "0" * 32, code=1)
    assert "No job" in unknown.stdout
    assert "nothing here is called 'seven'" in stocked("why", "seven", code=1).stdout


def test_count_by_queue_and_by_task(stocked):
    rows = {row["queue"]: row for row in stocked.lines("count")}

    assert (rows["mail"]["ready"], rows["mail"]["scheduled"]) == (1, 1)
    assert rows["payments"]["failed"] == 1
    tasks = [row["task"] for row in stocked.lines("count", "--by-task")]
    assert tasks == ["shop:send", "shop:charge"]
    assert stocked("count").stdout.splitlines()[0].split()[:2] == ["queue", "ready"]


def test_history_shows_the_last_rows_and_goes_on_from_a_position(stocked):
    rows = stocked.lines("history", "--limit", "2")

    assert [row["task"] for row in rows] == ["shop:add", "shop:charge"]
    everything = stocked.lines("history", "--after", "0", "--limit", "100")
    assert [row["task"] for row in everything] == ["shop:add", "shop:add", "shop:charge"]
    assert everything[0]["result"] == 3
    after = everything[0]["position"]
    assert stocked.lines("history", "--after", after) == everything[1:]
    for option in ("--after", "--before"):
        audit = ["--audit"] if option == "--before" else []
        wrong = stocked("history", *audit, option, "12", code=2).stderr
        assert "'12' is no position of this store: one has 20 digits" in " ".join(wrong.split())
    text = stocked("history").stdout
    assert "RuntimeError: no money" in text
    assert len(text.splitlines()) == 3


def test_gauges_are_for_programs(stocked):
    store = open_broker(f"sqlite:///{stocked.folder}/penstock.db")
    written = store.gauge()
    store.close()

    kinds = [row["kind"] for row in stocked.lines("history", "--after", "0", "--limit", "100")]

    assert kinds.count("gauge") == written > 0
    assert "gauge" not in stocked("history", "--after", "0", "--limit", "100").stdout
    assert "gauge" not in [row["kind"] for row in stocked.lines("history")]


def test_history_of_one_job(stocked):
    [failed] = stocked.lines("find", "state:failed")
    stocked("retry", failed["id"], "--reason", "paid in", "--secret", "card", answer="4242\n")

    rows = stocked.lines("history", failed["id"])

    assert [row["kind"] for row in rows] == ["attempt", "retry"]
    assert rows[1]["data"]["reason"] == "paid in"


def test_history_is_followed_as_it_happens(stocked):
    [waiting] = stocked.lines("find", "tag.tenant:a")
    following = stocked.start("history", "--follow", "--limit", "1", "--json")
    try:
        last = json.loads(following.stdout.readline())
        stocked("cancel", waiting["id"])
        news = json.loads(following.stdout.readline())
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=60)

    assert (last["kind"], last["task"]) == ("attempt", "shop:charge")
    assert (news["kind"], news["job"]) == ("cancel", waiting["id"])
    assert following.returncode == 130


TREE = """
from penstock import App, current_job

app = App()


@app.task(detached=True)
def root() -> None:
    branch.enqueue()


@app.task
def branch() -> None:
    leaf.enqueue()


@app.task
def leaf() -> None: ...
"""


def test_the_history_of_a_tree(cli, monkeypatch):
    """A31: three levels, with the events of each, and since a position."""
    monkeypatch.setenv("PENSTOCK_STATE", str(cli.folder / "state"))
    (cli.folder / "forest.py").write_text(TREE)
    root = cli.json("enqueue", "forest:root")["id"]
    worker = cli.start("worker", "forest:app", "--drain", "--processes", "1")
    worker.communicate(timeout=100)
    assert worker.returncode == 0

    branches = cli.lines("history", root, "--tree")

    assert [(each["level"], each["task"]) for each in branches] == [
        (0, "forest:root"),
        (1, "forest:branch"),
        (2, "forest:leaf"),
    ]
    assert [each["parent"] for each in branches] == [None, root, branches[1]["id"]]
    assert {each["state"] for each in branches} == {"succeeded"}
    names = [event["data"]["name"] for event in branches[0]["events"] if event["data"]]
    assert names == ["queued", "started"]
    every = sorted(event["position"] for each in branches for event in each["events"])
    last = every[every.index(branches[2]["events"][-1]["position"]) - 1]
    later = cli.lines("history", root, "--tree", "--after", last)
    events = [event for each in later for event in each["events"]]
    assert all(event["position"] > last for event in events)
    assert {event["job"] for event in events} >= {branches[2]["id"]}
    text = cli("history", root, "--tree").stdout
    assert f"    {branches[2]['id']}  forest:leaf  succeeded" in text
    assert "needs a job" in cli("history", "--tree", code=2).stderr


def test_the_history_of_a_job_says_first_what_it_is(stocked):
    [failed] = stocked.lines("find", "state:failed")

    result = stocked("history", failed["id"])

    assert 'shop:charge(card="***"), queue payments, enqueued ' in result.stderr
    assert result.stderr.rstrip().endswith(": failed")
    assert "4242" not in result.output


def test_count_reasons_says_why_jobs_ended(stocked):
    rows = stocked.lines("count", "--reasons")

    assert [(row["outcome"], row["reason"], row["count"]) for row in rows] == [
        ("succeeded", "completed", 2),
        ("failed", "error", 1),
    ]
    assert "completed" in stocked("count", "--reasons").stdout
    assert "nothing ended" in stocked("count", "--reasons", "--since", "2099-01-01").output
    assert "--reasons" in stocked("count", "--since", "2h", code=2).output
