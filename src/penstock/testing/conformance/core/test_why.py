"""Why: the first thing that keeps a job from running, from what the store holds."""

from __future__ import annotations

import pytest

from penstock.job import State, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    enqueue_and_claim,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def why(broker, clock, **fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])
    return broker.why(job.id)


def test_a_job_that_nobody_knows(broker, clock):
    job = a_job(clock)

    answer = broker.why(job.id)

    assert (answer.job, answer.state, answer.cause) == (job.id, None, "unknown")


def test_a_job_that_waits_for_its_time(broker, clock):
    """D55: every state has a reason that can be shown."""
    answer = why(broker, clock, run_at=clock.now() + 200)

    assert (answer.state, answer.cause) == (State.READY, "time")
    assert "3 min 20 s" in answer.sentence


def test_a_job_that_waits_to_be_tried_again(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, failed("x"))
    broker.act("retry", [job.id])
    [job] = claim(broker)
    settle(broker, job, try_again("ValueError: boom", clock.now() + 60))

    answer = broker.why(job.id)

    assert answer.cause == "time"
    assert "ValueError: boom" in answer.sentence


@pytest.mark.parametrize(
    ("kind", "cause"), [(RuleKind.PAUSE, "paused"), (RuleKind.BLOCK, "blocked")]
)
def test_a_job_under_a_rule(broker, clock, fields, kind, cause):
    """D55, D62: visible pause state."""
    broker.renew([a_worker()])
    broker.put(Rule(kind, queue="default", author="ada", reason="provider down"))

    answer = why(broker, clock, **fields)

    assert answer.cause == cause
    assert "ada" in answer.sentence
    assert "provider down" in answer.sentence


def test_a_job_without_any_worker(broker, clock, fields):
    answer = why(broker, clock, **fields)

    assert answer.cause == "no_worker"


def test_a_job_whose_workers_all_fell_silent(broker, clock, fields):
    broker.renew([a_worker()])
    clock.advance(seconds=16)

    assert why(broker, clock, **fields).cause == "no_worker"


def test_a_job_whose_task_nobody_knows(broker, clock, fields):
    """D53: reported, and nearest name given."""
    broker.renew([a_worker()])

    answer = why(broker, clock, task="mail:sned", **fields)

    assert answer.cause == "no_task"
    assert "mail:send" in answer.sentence


def test_a_job_whose_queue_nobody_serves(broker, clock, fields):
    broker.renew([a_worker(queues=("media",))])

    answer = why(broker, clock, queue="mail", **fields)

    assert answer.cause == "no_queue"


def test_a_job_that_is_newer_than_every_worker(broker, clock, fields):
    broker.renew([a_worker()])

    assert why(broker, clock, version=2, **fields).cause == "no_version"


def test_a_job_whose_tags_no_worker_has(broker, clock, fields):
    broker.renew([a_worker(tags=frozenset({"linux"}))])

    answer = why(broker, clock, runs_on=("gpu",), **fields)

    assert answer.cause == "no_tags"
    assert "gpu" in answer.sentence


def test_a_job_that_is_ready_says_how_many_are_ahead(broker, clock, fields):
    jobs = some_jobs(clock, 4, **fields)
    broker.enqueue(jobs)
    broker.renew([a_worker()])

    assert broker.why(jobs[0].id).cause == "next"
    assert "3 jobs" in broker.why(jobs[3].id).sentence


def test_jobs_of_another_lane_or_another_time_are_not_ahead(broker, clock):
    broker.renew([a_worker()])
    broker.enqueue([*some_jobs(clock, 3, "mail:sweep"), a_job(clock, run_at=clock.now() + 60)])
    clock.advance(seconds=1)

    answer = why(broker, clock)

    assert answer.cause == "next"
    assert "no job" in answer.sentence


def test_a_job_that_runs_says_where(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    answer = broker.why(job.id)

    assert (answer.state, answer.cause) == (State.RUNNING, "running")
    for word in ("worker-1", "ada", "7"):
        assert word in answer.sentence


def test_a_job_that_ended_says_how(broker, clock, fields):
    done = enqueue_and_claim(broker, clock, **fields)
    settle(broker, done, succeeded())
    bad = enqueue_and_claim(broker, clock, **fields)
    settle(broker, bad, failed("Traceback\nValueError: boom"))

    assert (broker.why(done.id).state, broker.why(done.id).cause) == (State.SUCCEEDED, "ended")
    assert broker.why(bad.id).cause == "ended"
    assert "ValueError: boom" in broker.why(bad.id).sentence
