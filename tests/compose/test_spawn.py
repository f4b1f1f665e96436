"""Flows that grow while they run."""

from __future__ import annotations

import msgspec

from penstock import Outcome, State
from penstock.enqueue.codec import read_body
from penstock.flows.compose import Spawn, spawned
from penstock.flows.spawn_links import SPAWNED_BY, spawned_in
from penstock.worker.job_process import typed_outcome
from tests.compose.compose_tasks import add, double, nothing, spawns_badly, split, total


def test_a_task_spawns_what_it_finds(t):
    split.enqueue(3)
    t.drain(limit=1)

    assert [job.state for job in t.jobs(double)] == [State.READY] * 3
    t.drain()
    assert {job.state for job in t.jobs()} == {State.SUCCEEDED}


def test_what_was_spawned_names_the_job_that_spawned_it(t):
    handle = split.enqueue(3, then="total")
    t.drain()

    [last] = t.jobs(total)
    assert read_body(last.body).headers == {SPAWNED_BY: handle.id}
    [said] = [
        found for row in t.broker.history("0", 10, handle.id) if (found := spawned_in(row.data))
    ]
    assert (said.jobs, said.flow) == (4, last.id)
    assert {*said.ids} == {job.id for job in t.jobs() if job.id != handle.id}


def test_what_follows_gets_what_they_returned(t):
    split.enqueue(3, then="total")
    t.drain()

    [job] = t.jobs(total)
    assert job.result == b"600"
    assert t.broker.flow(job.id).ended_at is not None


def test_what_follows_waits_though_it_takes_nothing(t):
    split.enqueue(2, then="after")
    t.drain(limit=1)

    [last] = t.jobs(nothing)
    assert last.state is State.WAITING
    [node] = [node for node in t.broker.flow(last.id).nodes if node.id == last.id]
    assert node.needs_left == 2


def test_in_a_flow_whoever_needs_it_waits_for_what_it_spawned(t):
    handle = add.job(split.job(3, then="total").output, 1).enqueue()
    t.drain(limit=1)
    assert handle.state() is State.WAITING

    ran = [attempt.job.task for attempt in t.drain()]

    assert ran == ["double", "double", "double", "total", "add"]
    assert handle.result() == 4
    assert [node.task for node in t.broker.flow(handle.id).nodes] == [
        "split",
        "double",
        "total",
        "add",
    ]


def test_an_attempt_that_fails_spawns_nothing(t):
    split.enqueue(3, then="fails")
    t.drain()

    assert [job.task for job in t.jobs()] == ["split"]


def test_what_cannot_be_spawned_is_refused(t):
    handle = spawns_badly.enqueue("mail")
    t.drain()

    assert "spawn takes jobs" in t.broker.get(handle.id).error


def test_what_travels_to_another_process_can_be_written_down():
    jobs, flow = spawned([Spawn((double.map([1, 2]), add.job(1)), nothing.job(1))], None)
    outcome = Outcome(State.SUCCEEDED, spawned=jobs, flow=flow)

    back = typed_outcome(
        msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=Outcome | None)
    )

    assert back == outcome
