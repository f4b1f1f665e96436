"""Cancel: jobs that have not ended are ended; running ones are told."""

from __future__ import annotations

import json

import pytest

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    enqueue_and_claim,
    history_of,
    ids_of,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_a_ready_job_is_cancelled_at_once(broker, clock, fields):
    """D62, I15: un-enqueue; no attempt starts after it."""
    job = a_job(clock, **fields)
    broker.enqueue([job])
    clock.advance(seconds=3)

    assert broker.act("cancel", [job.id], "ada", "wrong address") == [job.id]

    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.ended_at) == (
        State.CANCELLED,
        "cancelled",
        clock.now(),
    )
    assert claim(broker) == []


def test_a_scheduled_job_is_cancelled_at_once(broker, clock):
    job = a_job(clock, run_at=clock.now() + 60)
    broker.enqueue([job])

    assert broker.act("cancel", [job.id]) == [job.id]

    clock.advance(minutes=2)
    assert claim(broker) == []


def test_the_history_tells_who_and_why(broker, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])
    broker.act("cancel", [job.id], "ada", "wrong address")

    [event] = history_of(broker, job.id)

    assert (event.kind, event.state, event.reason) == ("cancel", State.CANCELLED, "cancelled")
    assert json.loads(event.data) == {"author": "ada", "reason": "wrong address"}


def test_a_running_job_is_told_and_goes_on_until_it_hears(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    assert broker.act("cancel", [job.id], "ada", "too late") == [job.id]

    assert broker.get(job.id).state is State.RUNNING
    assert broker.renew([a_worker()]).cancelled == {job.id}
    [event] = history_of(broker, job.id)
    assert event.kind == "cancel"
    assert json.loads(event.data) == {"author": "ada", "reason": "too late"}


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("x")], ids=["succeeded", "failed"])
def test_an_ended_job_is_left_as_it_is(broker, clock, fields, outcome):
    """I3: terminal states are final."""
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, outcome)

    assert broker.act("cancel", [job.id]) == []

    assert broker.get(job.id).state is outcome.state


def test_a_second_cancel_finds_nothing_left(broker, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])

    assert broker.act("cancel", [job.id]) == [job.id]
    assert broker.act("cancel", [job.id]) == []

    assert len(history_of(broker, job.id)) == 1


def test_the_neighbours_of_a_cancelled_job_run(broker, clock, fields):
    jobs = some_jobs(clock, 5, **fields)
    broker.enqueue(jobs)

    assert broker.act("cancel", [jobs[1].id, jobs[3].id]) == [jobs[1].id, jobs[3].id]

    assert sorted(ids_of(claim(broker, limit=9))) == [jobs[0].id, jobs[2].id, jobs[4].id]


def test_only_those_it_applied_to_are_named(broker, clock, fields):
    ready, unknown = a_job(clock, **fields), a_job(clock, **fields)
    ended = enqueue_and_claim(broker, clock, **fields)
    settle(broker, ended, succeeded())
    broker.enqueue([ready])

    assert broker.act("cancel", [unknown.id, ended.id, ready.id]) == [ready.id]
    assert broker.act("cancel", []) == []


def test_a_job_that_is_put_back_forgets_no_cancel(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])
    broker.recover(dead="worker-1", started=[])

    assert broker.get(job.id).state is State.CANCELLED
    assert claim(broker, worker="worker-2") == []
