"""Claim: the answer says when to claim again although nothing is hinted at."""

from __future__ import annotations

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.job import put_back
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, settle

WORKER = WorkerRow(id="worker-1", tasks={"mail:send": 1})


def at(time: float):
    """This time, as exactly as stores keep it."""
    return pytest.approx(time, rel=0, abs=0.001)


def next_at(broker, worker=WORKER, limit=10, queues=None) -> float | None:
    """What a claim answers; it must have taken less than it asked for."""
    claimed = broker.claim([Wanted(worker, limit, queues)])
    assert len(claimed.jobs[0]) < limit
    return claimed.next_at


def test_without_jobs_there_is_no_next_time(broker):
    assert next_at(broker) is None


def test_it_is_when_the_next_job_is_due(broker, clock):
    """D13: whoever waits knows when the next one is due, and need not look for it."""
    due = [clock.now() + seconds for seconds in (60, 20, 40)]
    jobs = [a_job(clock, run_at=time) for time in due]
    broker.enqueue(jobs)
    assert next_at(broker) == at(min(due))

    clock.advance(seconds=21)

    assert [job.id for job in claim(broker, limit=10)] == [jobs[1].id]
    assert next_at(broker) == at(due[2])


def test_a_job_whose_time_has_not_come_is_not_handed_out(broker, clock):
    job = a_job(clock, run_at=clock.now() + 20)
    broker.enqueue([job])

    clock.advance(seconds=19.9)
    assert claim(broker) == []
    clock.advance(seconds=0.2)

    assert [each.id for each in claim(broker)] == [job.id]


def test_an_earlier_job_that_is_stored_later_comes_first(broker, clock):
    broker.enqueue([a_job(clock, run_at=clock.now() + 60)])
    assert next_at(broker) == at(clock.now() + 60)

    broker.enqueue([a_job(clock, run_at=clock.now() + 5)])

    assert next_at(broker) == at(clock.now() + 5)


def test_a_job_that_was_put_back_for_later_counts(broker, clock):
    broker.enqueue([a_job(clock)])
    [job] = claim(broker)

    settle(broker, job, put_back("later", run_at=clock.now() + 30))

    assert next_at(broker) == at(clock.now() + 30)


def test_the_next_job_is_known_behind_one_that_is_held_back(broker, clock):
    """A due job that a rule holds back hides no later one of its lane."""
    broker.put(Rule(RuleKind.PAUSE, queue="default", key="ada"))
    held = a_job(clock, run_at=clock.now() - 5, key="ada")
    later = a_job(clock, run_at=clock.now() + 30, key="bob")
    broker.enqueue([held, later])

    assert next_at(broker) == at(later.run_at)


def test_only_jobs_that_this_worker_may_run_count(broker, clock):
    broker.enqueue(
        [
            a_job(clock, run_at=clock.now() + 10, task="other:task"),
            a_job(clock, run_at=clock.now() + 20, queue="other"),
            a_job(clock, run_at=clock.now() + 30),
        ]
    )

    assert next_at(broker, queues=["default"]) == at(clock.now() + 30)


@pytest.mark.needs("limits across buckets")
def test_it_is_when_a_rate_limit_lets_more_start(broker, clock):
    """What is held back costs an idle worker nothing, and does not come late."""
    broker.enqueue([a_job(clock) for _ in range(3)])
    broker.put(Rule(RuleKind.LIMIT, queue="default", rate=(1, 10.0)))
    assert len(claim(broker, limit=9)) == 1

    free_at = next_at(broker)

    assert free_at is not None
    assert clock.now() + 9 <= free_at <= clock.now() + 12
    clock.advance(seconds=free_at - clock.now())
    assert len(claim(broker, limit=9)) == 1


def test_it_is_when_a_pause_ends(broker, clock):
    broker.enqueue([a_job(clock)])
    broker.put(Rule(RuleKind.PAUSE, queue="default", until=clock.now() + 45))

    assert next_at(broker) == at(clock.now() + 45)

    clock.advance(seconds=45.5)
    assert len(claim(broker)) == 1


def test_of_several_workers_it_is_the_earliest(broker, clock):
    broker.enqueue(
        [
            a_job(clock, run_at=clock.now() + 20),
            a_job(clock, run_at=clock.now() + 10, task="other:task"),
        ]
    )
    other = WorkerRow(id="worker-2", tasks={"other:task": 1})

    claimed = broker.claim([Wanted(WORKER, 5), Wanted(other, 5)])

    assert claimed.next_at == at(clock.now() + 10)


def test_a_worker_polls_rarely(broker):
    """A lost hint costs seconds, and no store that sends hints is polled twice a second."""
    broker.wait(None, 0.0)  # it listens from now on

    assert 1 <= broker.traits.poll_seconds() <= 5
