"""A prune of much is many short scripts."""

from __future__ import annotations

import pytest

from penstock.broker.filter import Filter
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.redis.history import PRUNED_AT_ONCE
from penstock.job import Lane, Outcome, Parcel, State

DAY = 86400.0
WORKER = WorkerRow(id="w", tasks={"t": 1})


@pytest.fixture
def ended(redis_broker, clock):
    """More jobs that ended than one part of a prune takes."""
    count = PRUNED_AT_ONCE + 500
    lane = Lane("default", "t")
    for number in range(0, count, 100):
        clock.advance(1)
        first = f"{int(clock.now() * 1000):012x}"
        job_id = f"{first[:8]}-{first[8:]}-7000-8000-{number:09x}000"
        redis_broker.enqueue([Parcel(job_id, lane, [b'{"args":{}}'] * 100)])
    done = 0
    while jobs := redis_broker.claim([Wanted(WORKER, 1000)]).jobs[0]:
        at = clock.now()
        outcome = Outcome(State.SUCCEEDED, started_at=at, ended_at=at)
        assert all(redis_broker.settle([(job, outcome) for job in jobs]))
        done += len(jobs)
    assert done == count
    return count


def test_all_of_it_is_gone_at_the_end(redis_broker, clock, ended):
    clock.advance(days=2)

    rows = redis_broker.prune(clock.now() - DAY)

    assert rows >= 3 * ended  # a job, its id and its row of the history
    assert redis_broker.history() == []
    assert redis_broker.find(Filter()).jobs == []

    assert redis_broker.prune(clock.now() - DAY) == 0
