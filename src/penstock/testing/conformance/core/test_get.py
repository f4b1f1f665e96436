"""Get: the job wherever it is now."""

from __future__ import annotations

import pytest

from penstock.enqueue.ids import derived_id
from penstock.job import Outcome, State, failed, put_back, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    enqueue_and_claim,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_an_unknown_job_is_none(broker, clock):
    """D12, D44."""
    broker.enqueue(some_jobs(clock, 3))

    assert broker.get(a_job(clock).id) is None
    assert broker.get(derived_id("nothing")) is None


def test_a_neighbour_that_was_never_stored_is_none(broker, clock):
    jobs = some_jobs(clock, 5)
    broker.enqueue(jobs[1:4])

    assert [broker.get(job.id) is None for job in jobs] == [True, False, False, False, True]


def test_a_job_can_be_followed_through_its_life(broker, clock, fields):
    """G4, G5, B36: state readable by id, the same id throughout."""
    job = a_job(clock, **fields)
    states = []
    broker.enqueue([job])
    states.append(broker.get(job.id).state)
    [running] = claim(broker)
    states.append(broker.get(job.id).state)
    settle(broker, running, put_back("limit"))
    states.append(broker.get(job.id).state)
    [running] = claim(broker)
    settle(broker, running, failed("x"))
    states.append(broker.get(job.id).state)
    broker.act("retry", [job.id])
    states.append(broker.get(job.id).state)
    [running] = claim(broker)
    settle(broker, running, succeeded(b"1"))
    states.append(broker.get(job.id).state)

    assert states == [
        State.READY,
        State.RUNNING,
        State.READY,
        State.FAILED,
        State.READY,
        State.SUCCEEDED,
    ]


def test_a_running_job_shows_who_runs_it(broker, clock, fields):
    """G9."""
    broker.enqueue(some_jobs(clock, 3, **fields))
    clock.advance(seconds=1)
    [_, middle, _] = claim(broker, limit=3)

    found = broker.get(middle.id)

    assert (found.state, found.worker, found.attempt) == (State.RUNNING, "worker-1", 1)
    assert (found.claimed_at, found.body) == (clock.now(), middle.body)


def test_an_ended_job_shows_when_and_how(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, queue="mail", priority=3, **fields)
    clock.advance(seconds=9)
    settle(broker, job, succeeded(b'{"sent":true}'))

    found = broker.get(job.id)

    assert (found.state, found.ended_at, found.attempt) == (State.SUCCEEDED, clock.now(), 1)
    assert (found.result, found.queue, found.priority) == (b'{"sent":true}', "mail", 3)
    assert (found.enqueued_at, found.tags) == (job.enqueued_at, job.tags)


def test_a_result_of_none_is_not_the_same_as_a_job_that_is_gone(broker, clock, fields):
    kept = enqueue_and_claim(broker, clock, **fields)
    settle(broker, kept, succeeded())
    gone = enqueue_and_claim(broker, clock, **fields)
    settle(broker, gone, Outcome(State.SUCCEEDED, keep=False))

    assert broker.get(kept.id).result is None
    assert broker.get(gone.id) is None


def test_a_job_that_succeeded_after_failures_is_found(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("x"))
    broker.act("retry", [job.id])
    [again] = claim(broker)
    settle(broker, again, succeeded(b"1"))

    found = broker.get(job.id)

    assert (found.state, found.attempt, found.result) == (State.SUCCEEDED, 2, b"1")
