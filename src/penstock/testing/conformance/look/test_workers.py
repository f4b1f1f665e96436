"""Workers: every row, those that lapsed included until they are recovered."""

from __future__ import annotations

from penstock.job import succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    enqueue_and_claim,
    settle,
    some_jobs,
)


def test_a_worker_is_listed_as_it_declared_itself(broker, clock):
    """D66, B10."""
    row = a_worker(
        "worker-7",
        tasks={"mail:send": 3},
        tags=frozenset({"gpu", "large"}),
        queues=("mail", "media"),
        host="ada",
        pid=42,
        lease=30.0,
        started_at=clock.now() - 60,
    )

    broker.renew([row])

    [found] = broker.workers()
    assert (found.id, found.tasks, found.tags, found.queues) == (
        row.id,
        row.tasks,
        row.tags,
        row.queues,
    )
    assert (found.host, found.pid, found.lease, found.started_at) == (
        "ada",
        42,
        30.0,
        row.started_at,
    )
    assert found.alive


def test_a_worker_shows_how_many_jobs_it_holds(broker, clock):
    """D9, B47: in flight."""
    broker.enqueue([*some_jobs(clock, 3), *some_jobs(clock, 2, tags={"tenant": "a"})])
    taken = claim(broker, limit=9)
    broker.renew([a_worker("worker-2")])
    assert {row.id: row.running for row in broker.workers()} == {"worker-1": 5, "worker-2": 0}

    settle(broker, taken[0], succeeded())
    settle(broker, taken[-1], succeeded())

    assert {row.id: row.running for row in broker.workers()} == {"worker-1": 3, "worker-2": 0}


def test_a_worker_that_fell_silent_is_shown_as_such_until_it_is_recovered(broker, clock):
    enqueue_and_claim(broker, clock)
    clock.advance(seconds=16)

    [row] = broker.workers()
    assert (row.alive, row.running) == (False, 1)
    broker.recover()

    assert broker.workers() == []


def test_a_worker_that_declares_something_else_is_shown_anew(broker, clock):
    broker.renew([a_worker(tasks={"mail:send": 1})])

    broker.renew([a_worker(tasks={"mail:send": 2, "mail:sweep": 1})])

    assert [row.tasks for row in broker.workers()] == [{"mail:send": 2, "mail:sweep": 1}]


def test_what_a_worker_holds_survives_its_silence(broker, clock):
    enqueue_and_claim(broker, clock)
    clock.advance(seconds=16)
    broker.enqueue([a_job(clock)])

    claim(broker)

    [row] = broker.workers()
    assert (row.alive, row.running) == (True, 2)


def test_without_workers_there_are_none(broker):
    assert broker.workers() == []
