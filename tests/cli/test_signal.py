"""penstock signal: the word from outside, and what is said when nobody waits for it."""

from __future__ import annotations

import json

import pytest

from penstock import wait_for

TASKS = """
from penstock import App, wait_for

app = App()


@app.task
def ship(order: int, approval: object) -> str:
    return f"{order}: {approval}"
"""


@pytest.fixture
def waiting(cli):
    """A job that needs an approval."""
    (cli.folder / "shop.py").write_text(TASKS)
    import shop

    handle = shop.ship.job(7, wait_for("approve-62", 3600).output).enqueue()
    yield cli, handle
    shop.app.close()


def test_it_ends_who_waits(waiting):
    cli, handle = waiting

    said = cli("signal", "approve-62", '{"by": "ada"}', "--reason", "fine").stdout

    assert "1 job waited for the signal 'approve-62'" in said
    job_id = said.splitlines()[-1]
    [row] = cli.lines("history", job_id)
    assert (row["state"], row["data"]["reason"]) == ("succeeded", "fine")
    assert handle.why().cause == "no_worker"


def test_nobody_waiting_is_code_1(waiting):
    cli, _ = waiting

    said = cli("signal", "approve-63", code=1).stderr

    assert "no job waits for the signal 'approve-63'" in said
    assert cli.json("signal", "approve-63", code=1) == {"signal": "approve-63", "ended": []}


@pytest.mark.parametrize(
    ("word", "value"), [("yes", "yes"), ("-5", -5), ("[1, 2]", [1, 2]), (None, None), ("62", 62)]
)
def test_the_value_is_json_where_it_is_json(waiting, word, value):
    cli, _ = waiting

    words = [] if word is None else [word]
    [job_id] = cli.json("signal", "approve-62", *words, "--author", "ada")["ended"]

    store = cli.store()
    assert json.loads(store.get(job_id).result) == value
    [event] = store.history(job=job_id)
    assert json.loads(event.data)["author"] == "ada"
    store.close()


def test_half_a_document_is_refused(waiting):
    cli, _ = waiting

    assert "looks like JSON" in cli("signal", "approve-62", '{"by": ada}', code=2).stderr
    assert "no such option" in cli("signal", "approve-62", "--verbose", code=2).stderr


def test_the_flow_shows_what_is_waited_for(waiting):
    cli, handle = waiting

    drawn = cli("flow", handle.id).stdout
    assert "penstock:wait_for  waiting   0 of 1 ended, waits for the signal 'approve-62'" in drawn
    before = {node["task"]: node for node in cli.json("flow", handle.id)["nodes"]}
    cli("signal", "approve-62")
    after = {node["task"]: node for node in cli.json("flow", handle.id)["nodes"]}

    wait = before["penstock:wait_for"]
    assert (wait["state"], wait["signal"]) == ("waiting", "approve-62")
    ended = after["penstock:wait_for"]
    assert (ended["state"], ended["signal"]) == ("succeeded", None)
    assert after["shop:ship"]["state"] == "ready"


def test_who_waits_is_found_counted_and_explained(waiting):
    cli, handle = waiting

    [job] = cli.lines("find", "tag.signal:approve-62")
    assert (job["task"], job["state"]) == ("penstock:wait_for", "waiting")
    assert "waits for the signal 'approve-62' until" in cli("why", job["id"]).stdout
    assert f"a signal, see `penstock why {job['id']}`" in cli("why", handle.id, code=0).stdout
    assert "default      0          0        2" in cli("count").stdout
