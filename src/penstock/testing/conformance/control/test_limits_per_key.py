"""Limits per key: each key on its own, and none that waits hides another."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle, some_jobs

LIMIT = RuleKind.LIMIT


def keyed(clock, **numbers):
    return [job for key, count in numbers.items() for job in some_jobs(clock, count, key=key)]


def test_each_key_has_a_limit_of_its_own(broker, clock):
    """G31."""
    broker.enqueue(keyed(clock, a=5, b=3, c=1))
    broker.put(Rule(LIMIT, queue="default", running=2, per_key=True))

    taken = claim(broker, limit=20)

    assert Counter(job.key for job in taken) == {"a": 2, "b": 2, "c": 1}
    assert claim(broker, limit=20, worker="worker-2") == []
    [first, *_] = [job for job in taken if job.key == "a"]
    assert settle(broker, first, succeeded())
    assert [job.key for job in claim(broker, limit=20)] == ["a"]


def test_jobs_without_a_key_are_not_counted(broker, clock):
    broker.enqueue(some_jobs(clock, 3) + some_jobs(clock, 2, tags={"tenant": "a"}))
    broker.enqueue(keyed(clock, a=2))
    broker.put(Rule(LIMIT, queue="default", running=1, per_key=True))

    assert Counter(job.key for job in claim(broker, limit=20)) == {None: 5, "a": 1}


def test_one_key_at_a_time_runs_in_the_order_it_came(broker, clock):
    jobs = []
    for _ in range(4):
        jobs.append(a_job(clock, key="a"))
        clock.advance(seconds=1)
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, task="mail:send", running=1, per_key=True))

    order = []
    while taken := claim(broker, limit=5):
        [job] = taken
        order.append(job.id)
        assert settle(broker, job, succeeded())

    assert order == ids_of(jobs)


def test_many_jobs_of_one_key_do_not_hide_another(broker, clock):
    broker.enqueue(keyed(clock, a=300))
    broker.enqueue(keyed(clock, b=1))
    broker.put(Rule(LIMIT, queue="default", running=1, per_key=True))
    assert sorted(job.key or "" for job in claim(broker, limit=10)) == ["a", "b"]


def test_a_rate_per_key(broker, clock):
    """G39: 3 in a window, 2 keys, 10 jobs: 6 run now, 4 later."""
    broker.enqueue(keyed(clock, a=5, b=5))
    broker.put(Rule(LIMIT, queue="default", rate=(3, 10.0), per_key=True))

    now = claim(broker, limit=20)

    assert Counter(job.key for job in now) == {"a": 3, "b": 3}
    assert {job.start_within for job in now} == {1.0}
    assert claim(broker, limit=20) == []
    clock.advance(seconds=11.1)
    assert Counter(job.key for job in claim(broker, limit=20)) == {"a": 2, "b": 2}


@pytest.mark.needs("limits across buckets")
def test_beside_a_limit_of_the_whole_queue(broker, clock):
    broker.enqueue(keyed(clock, a=5, b=5, c=5))
    broker.put(Rule(LIMIT, queue="default", running=2, per_key=True))
    broker.put(Rule(LIMIT, queue="default", running=5))

    taken = Counter(job.key for job in claim(broker, limit=20))

    assert taken.total() == 5
    assert max(taken.values()) == 2


def test_over_several_lanes(broker, clock):
    """A key is one, whatever the task or the priority of its jobs."""
    broker.enqueue(
        [
            a_job(clock, task, key="a", priority=priority)
            for task in ("mail:send", "mail:sweep")
            for priority in (0, 5)
        ]
    )
    broker.put(Rule(LIMIT, queue="default", running=3, per_key=True))

    assert len(claim(broker, limit=20)) == 3


def test_what_a_dead_worker_held_is_free_once_it_is_recovered(broker, clock):
    broker.enqueue(keyed(clock, a=3))
    broker.put(Rule(LIMIT, queue="default", running=1, per_key=True))
    assert len(claim(broker, limit=5, worker="worker-2")) == 1
    clock.advance(seconds=16)
    assert claim(broker, limit=5) == []

    broker.recover()

    assert len(claim(broker, limit=5)) == 1


def test_counted_and_explained(broker, clock):
    jobs = keyed(clock, a=4, b=1)
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, queue="default", running=2, per_key=True))
    claim(broker, limit=20)

    [count] = broker.count()
    answer = broker.why(jobs[3].id)

    assert (count.running, count.ready, count.limited) == (3, 0, 2)
    assert answer.cause == "limit"
    assert "each key on its own" in answer.sentence
    assert "2 run now for the key 'a' (2 on worker-1)" in answer.sentence


def test_a_key_is_counted_over_all_queues_that_the_limit_covers(broker, clock):
    """Room that the jobs of one queue would take is not there for those of the next."""
    broker.put(Rule(LIMIT, task=a_job(clock).task, running=2, per_key=True))
    for queue in ("mail", "media"):
        broker.enqueue(some_jobs(clock, 2, queue=queue, key="ada"))
    broker.enqueue(some_jobs(clock, 1, queue="media", key="bob"))

    counts = {count.queue: (count.ready, count.limited) for count in broker.count()}

    assert counts == {"mail": (2, 0), "media": (1, 2)}
