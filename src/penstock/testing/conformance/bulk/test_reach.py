"""Reach: how far a history may be read without missing whoever commits late."""

from __future__ import annotations

import threading

import pytest

from penstock.broker.slice import Selection
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_worker, claim, claim_for, end_all, some_jobs

ATTEMPTS = Selection(table="attempts")
EVENTS = Selection(table="events")


def test_an_empty_history_reaches_as_far_as_one_is(broker):
    assert broker.reach(ATTEMPTS).position == 0
    assert broker.reach(ATTEMPTS, patience=0).position == 0


def test_a_position_that_is_not_of_this_history_is_refused(broker, clock):
    """A store restored from a backup would otherwise be read with rows left out."""
    broker.enqueue(some_jobs(clock, 1))
    end_all(broker, succeeded())

    with pytest.raises(Refused, match=r"is ahead of this history, which has come to \d+"):
        broker.reach(ATTEMPTS, after=1 << 60)


def test_it_reaches_to_the_last_row(broker, clock):
    broker.enqueue(some_jobs(clock, 5))
    end_all(broker, succeeded())
    rows = broker.history()

    reach = broker.reach(ATTEMPTS)

    assert reach.position == rows[-1].position
    assert broker.reach(ATTEMPTS, after=reach.position).position == reach.position
    assert reach.store == broker.reach(EVENTS).store != ""


def test_no_more_than_so_many_rows_are_in_between(broker, clock):
    broker.enqueue(some_jobs(clock, 5))
    jobs = claim(broker, limit=5)
    broker.act("cancel", [jobs[0].id])  # an event among the attempts
    broker.settle([(job, succeeded()) for job in jobs])
    rows = broker.history()
    attempts = [row.position for row in rows if row.kind == "attempt"]

    assert broker.reach(ATTEMPTS, at_most=2).position == attempts[1]
    assert broker.reach(ATTEMPTS, after=attempts[1], at_most=2).position == attempts[3]
    assert broker.reach(ATTEMPTS, after=attempts[1], at_most=99).position == rows[-1].position
    assert broker.reach(EVENTS, at_most=7).position == rows[-1].position


def test_two_stores_have_two_names(broker):
    from penstock.brokers.memory import MemoryBroker

    assert broker.reach(ATTEMPTS).store != MemoryBroker().reach(ATTEMPTS).store


def test_a_reader_that_goes_by_it_misses_nothing_beside_many_writers(broker, clock):
    """I13: late committers are behind it."""
    broker.enqueue(some_jobs(clock, 200))
    done = threading.Event()
    read: list[str | None] = []

    def reader():
        after = 0
        while True:
            last = done.is_set()
            until = broker.reach(ATTEMPTS, after, at_most=20).position
            rows = [row for row in broker.history(after, limit=500) if row.position <= until]
            read.extend(row.job for row in rows)
            if last and until == after:
                return
            after = until

    def worker(name: str):
        while jobs := claim_for(broker, a_worker(name), limit=5):
            broker.settle([(job, succeeded()) for job in jobs])

    following = threading.Thread(target=reader)
    workers = [threading.Thread(target=worker, args=(f"worker-{n}",)) for n in range(5)]
    for thread in (following, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    following.join()

    assert len(read) == len(set(read)) == 200
