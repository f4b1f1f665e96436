"""penstock flow: how far a flow is, drawn, and as one document for programs."""

from __future__ import annotations

import re

import pytest

from penstock import App
from penstock.broker.views import WorkerRow
from penstock.testing.conformance.factories import claim_for

FLOWS = """
from penstock import App

app = App()


@app.task
def check(user: int) -> bool:
    return user > 10


@app.task
def reward(platform: str, access: bool) -> str:
    if platform == "bad":
        raise ValueError("no such platform")
    return platform


@app.task
def finish(rewards: list[str]) -> str:
    return ",".join(rewards)
"""


@pytest.fixture
def flows(cli):
    (cli.folder / "flows.py").write_text(FLOWS)
    return cli


def enqueued(cli, *platforms, **options):
    """A flow of three levels; returns the handle of its last job, and the app."""
    import flows

    access = flows.check.job(62)
    rewards = flows.reward.map(platforms, access=access.output)
    return flows.finish.job(rewards.output).enqueue(**options), flows.app


def work(app: App, limit: int = 100) -> None:
    """Run what is ready, once."""
    from penstock.run.attempt import run

    row = WorkerRow(id="worker-1", tasks=app.known_tasks())
    claimed = claim_for(app.broker, row, limit=limit)
    app.broker.settle([(job, run(app, app.tasks[job.task], job)) for job in claimed])


def test_a_flow_that_waits_is_drawn_by_levels(flows):
    handle, app = enqueued(flows, "discord", "telegram")

    lines = flows("flow", handle.id).stdout.splitlines()

    assert f"flow {handle.id}: 0 of 4 jobs ended" in lines[0]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["flows:check", "ready"],
        ["flows:reward", "waiting"],
        ["flows:finish", "waiting"],
    ]
    assert [len(line) - len(line.lstrip()) for line in lines[1:]] == [2, 4, 6]
    assert "0 of 2 ended, waits for 1 of its 1 needs" in lines[2]
    app.close()


def test_what_runs_is_shown_with_how_long_it_has(flows):
    handle, app = enqueued(flows, "discord")
    [job] = claim_for(app.broker, WorkerRow(id="worker-1", tasks=app.known_tasks()))

    text = flows("flow", handle.id).stdout

    assert re.search(rf"1 running, the longest for [^,]+ \({job.id}\)", text)
    app.close()


def test_what_failed_is_shown_with_what_it_said(flows):
    handle, app = enqueued(flows, "discord", "bad")
    work(app)
    work(app)

    text = flows("flow", handle.id).stdout

    assert "all 4 jobs ended, 2 of them without success" in text
    assert "2 of 2 ended, 1 without success" in text
    assert "ValueError: no such platform" in text
    assert [line.split()[1] for line in text.splitlines()[1:]] == [
        "succeeded",
        "failed",
        "cancelled",
    ]
    app.close()


def test_a_flow_is_one_document_for_programs(flows):
    handle, app = enqueued(flows, "discord", on_failure="continue")
    work(app)

    document = flows.json("flow", handle.id)

    assert (document["id"], document["ended_at"]) == (handle.id, None)
    assert [
        (node["task"], node["level"], node["state"], node["jobs_left"], node["needs_left"])
        for node in document["nodes"]
    ] == [
        ("flows:check", 0, "succeeded", 0, 0),
        ("flows:reward", 1, "ready", 1, 0),
        ("flows:finish", 2, "waiting", 1, 1),
    ]
    assert document["nodes"][2]["on_failure"] == "continue"
    app.close()


def test_any_job_of_a_flow_leads_to_it(flows):
    handle, app = enqueued(flows, "discord")
    jobs = flows.lines("find")

    assert {flows.json("flow", job["id"])["id"] for job in jobs} == {handle.id}
    app.close()


def test_what_is_no_flow_is_said_to_be_none(flows):
    _, app = enqueued(flows, "discord")
    alone = app.tasks["flows:check"].enqueue(1)

    for id in (alone.id, "0" * 32):
        assert "is not a flow" in flows("flow", id, code=1).stdout
    assert flows.json("flow", alone.id, code=1) == {"id": alone.id, "known": False}
    assert "is not a job id" in flows("flow", "seven", code=2).stderr
    app.close()


def named(cli, user, *platforms):
    """The same flow, under a name."""
    import flows

    rewards = flows.reward.map(platforms, access=flows.check.job(user).output)
    access = flows.app.flow(
        "access", find={"user": user, "role": ["admin", "guest"]}, state={"n": 1}
    )
    return access.enqueue(flows.finish.job(rewards.output)), flows.app


def test_a_flow_is_found_by_its_name_and_properties(flows):
    """G21: lookup by property, at the command line."""
    first, app = named(flows, 62, "discord")
    second, _ = named(flows, 63, "discord")

    text = flows("flow", "--name", "access", "--find", "user=62", "--find", "role=guest").stdout
    assert f'flow access user=62 role=["admin","guest"] {first.id}: 0 of 3 jobs' in text
    assert 'state {"n":1}' in text
    document = flows.json("flow", "--name", "access")
    assert (document["id"], document["find"]["user"]) == (second.id, 63)
    assert document["state"] == {"n": 1}
    assert (
        "no flow access user=64"
        in flows("flow", "--name", "access", "--find", "user=64", code=1).stdout
    )
    app.close()


@pytest.mark.parametrize(
    "words", [(), ("--find", "a=b"), ("--name", "a", "0" * 32), ("--name", "a", "--find", "b")]
)
def test_what_flow_is_meant_must_be_said_in_one_way(flows, words):
    assert "--find" in flows("flow", *words, code=2).stderr


def test_a_whole_flow_is_cancelled_retried_and_deleted(flows):
    handle, app = named(flows, 62, "discord", "bad")
    work(app)
    member = app.broker.flow(handle.id).nodes[0].id

    assert "3 jobs cancelled" in flows("cancel", "--flow", handle.id, "--reason", "enough").stdout
    assert handle.ended
    assert len(flows.json("retry", "--flow", member)["done"]) == 3
    assert not handle.ended
    work(app)
    work(app)
    assert "2 jobs ready again" in flows("retry", "--flow", handle.id).stdout
    assert "4 jobs deleted" in flows("delete", "--flow", handle.id).stdout
    assert app.find_flow("access", user=62) is None
    assert "is not a flow" in flows("cancel", "--flow", handle.id, code=2).stderr
    assert "--flow" in flows("cancel", "--flow", handle.id, "state:failed", code=2).stderr
    app.close()
