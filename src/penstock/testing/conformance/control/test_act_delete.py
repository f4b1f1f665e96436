"""Delete: a job that does not run is forgotten; what happened stays in the history."""

from __future__ import annotations

import json

import pytest

from penstock.broker.filter import Filter
from penstock.broker.views import Note
from penstock.enqueue.ids import lasting_id
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    begun,
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


def test_a_ready_job_is_gone_and_its_neighbours_run(broker, clock, fields):
    """B36, D62."""
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)

    assert broker.act("delete", [jobs[1].id]) == [jobs[1].id]

    assert broker.get(jobs[1].id) is None
    assert ids_of(claim(broker, limit=9)) == [jobs[0].id, jobs[2].id]


def test_a_scheduled_job_is_gone(broker, clock):
    job = a_job(clock, run_at=clock.now() + 60)
    broker.enqueue([job])

    broker.act("delete", [job.id])

    clock.advance(minutes=2)
    assert claim(broker) == []
    assert broker.count() == []


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("x")], ids=["succeeded", "failed"])
def test_an_ended_job_is_gone_with_its_arguments_and_result(broker, clock, fields, outcome):
    job = enqueue_and_claim(broker, clock, body=b'{"args":{"name":"ada"}}', **fields)
    settle(broker, job, begun(outcome, clock.now()))

    assert broker.act("delete", [job.id], "ada", "asked to") == [job.id]

    assert broker.get(job.id) is None
    assert broker.find(Filter()).jobs == []
    attempt, deleted = history_of(broker, job.id)
    assert (attempt.kind, attempt.state) == ("attempt", outcome.state)
    assert (attempt.body, attempt.result) == (None, None)
    assert deleted.kind == "delete"
    assert json.loads(deleted.data) == {"author": "ada", "reason": "asked to"}


def test_a_cancelled_job_is_gone(broker, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])
    broker.act("cancel", [job.id])

    assert broker.act("delete", [job.id]) == [job.id]

    assert broker.get(job.id) is None


def test_a_running_job_is_not_deleted(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    assert broker.act("delete", [job.id]) == []

    assert broker.get(job.id).state is State.RUNNING
    assert settle(broker, job, succeeded())


def test_what_is_unknown_or_gone_already_is_not_named(broker, clock, fields):
    job, unknown = a_job(clock, **fields), a_job(clock, **fields)
    broker.enqueue([job])

    assert broker.act("delete", [unknown.id, job.id]) == [job.id]
    assert broker.act("delete", [job.id]) == []
    assert broker.act("delete", []) == []


def test_a_deleted_job_cannot_be_retried_or_cancelled(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("x"))
    broker.act("delete", [job.id])

    assert broker.act("retry", [job.id]) == []
    assert broker.act("cancel", [job.id]) == []


def test_the_notes_of_a_deleted_job_are_gone(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.note(job, Note("log", "1", b'"ada wrote"'))
    settle(broker, job, failed("x"))

    broker.act("delete", [job.id])

    assert broker.notes(job.id) == []


def test_a_job_that_comes_again_after_its_delete_has_a_history_of_its_own(broker, clock):
    """Its id is a lasting one, and it was not done: what was forgotten was of the first one."""
    job = a_job(clock, id=lasting_id("row", "62"), body=b'{"args":{"n":62}}')
    broker.enqueue([job])
    [first] = claim(broker)
    settle(broker, first, begun(failed("x"), clock.now()))
    broker.act("delete", [job.id])
    broker.enqueue([job])
    [again] = claim(broker)

    settle(broker, again, begun(succeeded(b"1"), clock.now()))

    one, _, two = history_of(broker, job.id)
    assert (one.state, one.body) == (State.FAILED, None)
    assert (two.state, two.body, two.result) == (State.SUCCEEDED, job.body, b"1")
