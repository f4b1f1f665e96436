"""Count: where jobs stand, per queue and task."""

from __future__ import annotations

import pytest

from penstock.broker.views import Count
from penstock.job import Outcome, State, failed, lapsed, put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
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


def the_count(broker) -> Count:
    [count] = broker.count()
    return count


def test_an_empty_store_has_no_rows(broker):
    assert broker.count() == []


def test_jobs_are_counted_per_queue_and_task(broker, clock, fields):
    """D40."""
    broker.enqueue(
        [
            *some_jobs(clock, 3, "mail:send", queue="mail", **fields),
            *some_jobs(clock, 2, "mail:send", queue="mail", priority=7, **fields),
            *some_jobs(clock, 2, "mail:sweep", queue="mail", **fields),
            *some_jobs(clock, 1, "mail:send", queue="other", **fields),
        ]
    )

    assert sorted((c.queue, c.task, c.ready) for c in broker.count()) == [
        ("mail", "mail:send", 5),
        ("mail", "mail:sweep", 2),
        ("other", "mail:send", 1),
    ]


def test_a_job_is_counted_where_it_stands(broker, clock, fields):
    """B47, C22: total, ready, scheduled, paused, in flight, failed."""
    broker.enqueue([*some_jobs(clock, 4, **fields), a_job(clock, run_at=clock.now() + 90)])
    first, second, third = claim(broker, limit=3)

    assert the_count(broker) == Count("default", "mail:send", ready=1, scheduled=1, running=3)
    settle(broker, first, succeeded())
    settle(broker, second, failed("x"))
    settle(broker, third, try_again("x", clock.now() + 60))

    count = the_count(broker)
    assert count == Count("default", "mail:send", ready=1, scheduled=2, failed=1)
    assert count.total == 3


def test_what_ended_is_not_counted_but_failed(broker, clock, fields):
    """C5: counts exclude finished."""
    for outcome in (
        succeeded(),
        Outcome(State.SUCCEEDED, keep=False),
        Outcome(State.CANCELLED, "cancelled"),
        Outcome(State.FAILED, keep=False),
    ):
        settle(broker, enqueue_and_claim(broker, clock, **fields), outcome)

    assert broker.count() == []


@pytest.mark.parametrize("seconds", [1, 30, 59, 61, 3600, 90 * 86400])
def test_a_scheduled_job_is_ready_from_its_very_second_on(broker, clock, seconds):
    """Exact, also within a minute."""
    broker.enqueue([a_job(clock, run_at=clock.now() + seconds)])
    clock.advance(seconds=seconds - 0.5)
    assert the_count(broker) == Count("default", "mail:send", scheduled=1)

    clock.advance(seconds=0.5)

    assert the_count(broker) == Count("default", "mail:send", ready=1)
    assert len(claim(broker)) == 1
    assert the_count(broker) == Count("default", "mail:send", running=1)


def test_jobs_due_in_the_same_minute_are_told_apart(broker, clock):
    broker.enqueue([a_job(clock, run_at=clock.now() + seconds) for seconds in range(1, 121)])
    seen = []
    for _ in range(12):
        clock.advance(seconds=10)
        count = the_count(broker)
        seen.append((count.ready, count.scheduled))

    assert seen == [(10 * step, 120 - 10 * step) for step in range(1, 13)]


def test_jobs_under_a_rule_are_paused_and_scheduled_ones_stay_scheduled(broker, clock, fields):
    broker.enqueue([*some_jobs(clock, 3, **fields), a_job(clock, run_at=clock.now() + 90)])
    claim(broker)

    broker.put(Rule(RuleKind.PAUSE, queue="default"))

    assert the_count(broker) == Count("default", "mail:send", paused=2, scheduled=1, running=1)
    clock.advance(seconds=90)
    assert the_count(broker) == Count("default", "mail:send", paused=3, running=1)
    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="default"))
    assert the_count(broker) == Count("default", "mail:send", ready=3, running=1)


def test_a_rule_on_a_task_pauses_that_task_alone(broker, clock, fields):
    broker.enqueue([a_job(clock, "mail:send", **fields), a_job(clock, "mail:sweep", **fields)])

    broker.put(Rule(RuleKind.BLOCK, task="mail:send"))

    assert sorted((c.task, c.ready, c.paused) for c in broker.count()) == [
        ("mail:send", 0, 1),
        ("mail:sweep", 1, 0),
    ]


def test_the_count_follows_every_verb_that_moves_a_job(broker, clock, fields):
    """D40: emits minus completed, always."""
    jobs = some_jobs(clock, 6, **fields)
    broker.enqueue(jobs)
    broker.enqueue(jobs)
    assert the_count(broker).ready == 6
    broker.act("cancel", [jobs[5].id])
    broker.act("delete", [jobs[4].id])
    assert the_count(broker).ready == 4
    first, second = claim(broker, limit=2)
    settle(broker, first, put_back("limit"))
    settle(broker, second, failed("x"))
    assert the_count(broker) == Count("default", "mail:send", ready=3, failed=1)
    broker.act("retry", [second.id, jobs[5].id])
    assert the_count(broker) == Count("default", "mail:send", ready=5)
    claim(broker, limit=5)
    clock.advance(seconds=16)
    broker.recover()
    assert the_count(broker) == Count("default", "mail:send", ready=5)
    for job in claim(broker, limit=5):
        settle(broker, job, succeeded())

    assert broker.count() == []


def test_a_job_that_crashed_too_often_is_counted_as_failed(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    for _ in range(2):
        settle(broker, job, lapsed())
        clock.advance(seconds=5)  # it waits longer each time
        [job] = claim(broker)
    settle(broker, job, lapsed())

    assert the_count(broker) == Count("default", "mail:send", failed=1)
    clock.advance(days=20)
    broker.prune(clock.now() - 86400)

    assert broker.count() == []


def test_expired_jobs_are_not_counted_once_they_ended(broker, clock):
    broker.enqueue(some_jobs(clock, 2, expires_at=clock.now() + 10))
    clock.advance(seconds=11)
    broker.recover()

    assert broker.count() == []
