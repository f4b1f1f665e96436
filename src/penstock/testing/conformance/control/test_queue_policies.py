"""The queue policies that others ship by name, said with unique keys, limits and order."""

from __future__ import annotations

import pytest

from penstock.job import Unique, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle

LIMIT, ORDER = RuleKind.LIMIT, RuleKind.ORDER


def offered(broker, clock, until=None):
    """One more job; whether it was stored."""
    clock.advance(seconds=0.01)
    unique = None if until is None else Unique("report", until)
    job = a_job(clock, queue="reports", unique=unique)
    return not broker.enqueue([job]).standing


def test_one_queued(broker, clock):
    """A49: a second one is not stored while one waits; any number may run."""
    assert [offered(broker, clock, "started") for _ in range(3)] == [True, False, False]
    assert len(claim(broker, 9)) == 1
    assert [offered(broker, clock, "started") for _ in range(2)] == [True, False]
    assert len(claim(broker, 9)) == 1


@pytest.mark.needs("limits across buckets")
def test_one_active(broker, clock):
    """A49: any number may wait, one runs."""
    broker.put(Rule(LIMIT, queue="reports", running=1))
    assert all(offered(broker, clock) for _ in range(3))

    [first] = claim(broker, 9)
    assert claim(broker, 9, "worker-2") == []
    settle(broker, first, succeeded())
    assert len(claim(broker, 9, "worker-2")) == 1


@pytest.mark.needs("limits across buckets")
def test_one_of_each_state(broker, clock):
    """A49: one waits and one runs, no more of either."""
    broker.put(Rule(LIMIT, queue="reports", running=1))
    assert offered(broker, clock, "started")
    [first] = claim(broker, 9)
    assert [offered(broker, clock, "started") for _ in range(3)] == [True, False, False]

    assert claim(broker, 9) == []
    settle(broker, first, succeeded())
    assert len(claim(broker, 9)) == 1


def test_one_queued_or_active(broker, clock):
    """A49: a second one is not stored until the first has ended, its retries included."""
    assert [offered(broker, clock, "ended") for _ in range(2)] == [True, False]
    [first] = claim(broker, 9)
    assert not offered(broker, clock, "ended")
    settle(broker, first, try_again("no", clock.now()))
    assert not offered(broker, clock, "ended")
    [again] = claim(broker, 9)
    settle(broker, again, succeeded())

    assert offered(broker, clock, "ended")


def test_strict_order_per_key_that_a_failed_job_keeps_back(broker, clock):
    """A49: and other keys go on."""
    broker.put(Rule(ORDER, queue="reports", policy="wait"))
    jobs = []
    for key in ("ada", "ada", "bob", "bob"):
        clock.advance(seconds=0.01)
        jobs.append(a_job(clock, queue="reports", key=key))
    broker.enqueue(jobs)
    first, second = sorted(claim(broker, 9), key=lambda job: job.key)
    settle(broker, first, failed("no"))
    settle(broker, second, succeeded())

    assert ids_of(claim(broker, 9)) == [jobs[3].id]
    broker.act("retry", [jobs[0].id])
    assert ids_of(claim(broker, 9)) == [jobs[0].id]
