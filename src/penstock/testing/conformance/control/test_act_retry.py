"""Retry: failed and cancelled jobs get another life, scheduled ones are due now."""

from __future__ import annotations

import json

import pytest

from penstock.job import State, Unique, failed, lapsed, put_back, succeeded, try_again
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    enqueue_and_claim,
    history_of,
    settle,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_a_failed_job_runs_again_with_its_counters_at_zero(broker, clock, fields):
    """D52: redrive; the attempt goes on, so that the fence holds."""
    job = enqueue_and_claim(broker, clock, body=b'{"args":{"n":1}}', **fields)
    settle(broker, job, try_again("boom", clock.now()))
    [job] = claim(broker)
    settle(broker, job, lapsed())
    [job] = claim(broker)
    settle(broker, job, failed("boom"))
    clock.advance(seconds=5)

    assert broker.act("retry", [job.id]) == [job.id]

    ready = broker.get(job.id)
    assert (ready.state, ready.run_at, ready.ended_at) == (State.READY, clock.now(), None)
    assert (ready.failures, ready.lapses, ready.repeats) == (0, 0, 0)
    assert (ready.reason, ready.error) == (None, None)
    [again] = claim(broker)
    assert (again.id, again.attempt, again.body) == (job.id, 4, b'{"args":{"n":1}}')
    assert not settle(broker, job, succeeded())
    assert settle(broker, again, succeeded())


def test_a_cancelled_job_runs_again(broker, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])
    broker.act("cancel", [job.id])

    assert broker.act("retry", [job.id]) == [job.id]

    [again] = claim(broker)
    assert (again.id, again.attempt) == (job.id, 1)
    assert settle(broker, again, put_back("limit"))
    assert broker.get(job.id).state is State.READY


def test_a_scheduled_job_is_due_now(broker, clock):
    job = a_job(clock, run_at=clock.now() + 3600)
    broker.enqueue([job])

    assert broker.act("retry", [job.id]) == [job.id]

    assert [found.id for found in claim(broker)] == [job.id]


def test_a_job_that_waits_for_its_next_try_is_due_now_and_keeps_its_counters(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, try_again("boom", clock.now() + 300))

    assert broker.act("retry", [job.id]) == [job.id]

    [again] = claim(broker)
    assert (again.id, again.failures) == (job.id, 1)


def test_jobs_that_are_due_running_succeeded_or_unknown_are_left_alone(broker, clock, fields):
    done = enqueue_and_claim(broker, clock, **fields)
    settle(broker, done, succeeded(b"1"))
    running = enqueue_and_claim(broker, clock, **fields)
    due, unknown = a_job(clock, **fields), a_job(clock, **fields)
    broker.enqueue([due])

    assert broker.act("retry", [done.id, running.id, due.id, unknown.id]) == []

    assert broker.get(done.id).result == b"1"
    assert broker.get(running.id).state is State.RUNNING
    assert history_of(broker, due.id) == []


def test_the_history_tells_who_and_why(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("boom"))

    broker.act("retry", [job.id], "ada", "fixed")

    event = history_of(broker, job.id)[-1]
    assert event.kind == "retry"
    assert json.loads(event.data) == {"author": "ada", "reason": "fixed"}


def test_a_retried_job_that_fails_again_is_failed_again(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("first"))
    broker.act("retry", [job.id])
    [again] = claim(broker)
    settle(broker, again, failed("second"))

    ended = broker.get(job.id)

    assert (ended.state, ended.error, ended.failures) == (State.FAILED, "second", 1)


def test_a_retried_job_takes_its_unique_key_again(broker, clock):
    job = enqueue_and_claim(broker, clock, unique=Unique("welcome"))
    settle(broker, job, failed("boom"))
    broker.act("retry", [job.id])
    second = a_job(clock, unique=Unique("welcome"))

    assert broker.enqueue([second]).standing == {second.id: job.id}


def test_a_job_whose_key_is_held_by_another_is_not_retried(broker, clock):
    job = enqueue_and_claim(broker, clock, unique=Unique("welcome"))
    settle(broker, job, failed("boom"))
    second = a_job(clock, unique=Unique("welcome"))
    broker.enqueue([second])

    assert broker.act("retry", [job.id]) == []

    assert broker.get(job.id).state is State.FAILED


def test_of_two_failed_jobs_with_one_key_one_is_retried(broker, clock):
    first = enqueue_and_claim(broker, clock, unique=Unique("welcome"))
    settle(broker, first, failed("boom"))
    clock.advance(seconds=1)
    second = enqueue_and_claim(broker, clock, unique=Unique("welcome"))
    settle(broker, second, failed("boom"))

    assert broker.act("retry", [first.id, second.id]) == [first.id]


def test_a_job_that_expired_does_not_expire_again_at_once(broker, clock):
    job = a_job(clock, expires_at=clock.now() + 10)
    broker.enqueue([job])
    clock.advance(seconds=11)
    broker.recover()
    assert broker.get(job.id).reason == "expired"

    assert broker.act("retry", [job.id]) == [job.id]

    assert [found.id for found in claim(broker)] == [job.id]


def test_the_event_of_a_retry_has_the_counters_at_zero(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("boom"))

    broker.act("retry", [job.id])

    [event] = [event for event in history_of(broker, job.id) if event.kind == "retry"]
    assert (event.failures, event.lapses) == (0, 0)


SECRET = b'{"args":{"to":"ada","token":"hunter2","pin":"0000"},"secret":["token","pin"]}'


def test_a_job_whose_secrets_are_gone_is_left_as_it_is(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, body=SECRET, **fields)
    settle(broker, job, failed("boom"))
    before = broker.get(job.id)

    assert broker.act("retry", [job.id]) == []
    assert broker.act("retry", [job.id], secrets={"token": "hunter2"}) == []

    assert broker.get(job.id) == before
    assert claim(broker) == []


def test_a_job_runs_again_with_the_secrets_that_are_given(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, body=SECRET, **fields)
    settle(broker, job, failed("boom"))
    given = {"token": "another", "pin": "1111", "to": "eve"}

    assert broker.act("retry", [job.id], secrets=given) == [job.id]

    [again] = claim(broker)
    assert json.loads(again.body)["args"] == {"to": "ada", "token": "another", "pin": "1111"}
    settle(broker, again, succeeded())
    assert broker.act("retry", [job.id], secrets=given) == []
    assert b"another" not in b"".join(row.body or b"" for row in history_of(broker, job.id))


def test_a_job_without_secrets_does_not_need_any(broker, clock, fields):
    """Declared, but with the default: nothing of it was stored, and nothing is gone."""
    body = b'{"args":{"to":"ada"},"secret":["token"]}'
    job = enqueue_and_claim(broker, clock, body=body, **fields)
    settle(broker, job, failed("boom"))

    assert broker.act("retry", [job.id], secrets={"token": "x"}) == [job.id]

    assert claim(broker)[0].body == body
