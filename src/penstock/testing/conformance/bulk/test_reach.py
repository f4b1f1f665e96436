"""Reach: how far a history may be read without missing whoever commits late."""

from __future__ import annotations

import threading

import pytest

from penstock.broker.position import BEGINNING
from penstock.broker.slice import Selection
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_worker, claim, claim_for, end_all, some_jobs

pytestmark = pytest.mark.needs("bulk")

ATTEMPTS = Selection(table="attempts")
EVENTS = Selection(table="events")


def test_an_empty_history_reaches_as_far_as_one_is(broker):
    assert broker.reach(ATTEMPTS).position == BEGINNING
    assert broker.reach(ATTEMPTS, patience=0).position == BEGINNING


def test_a_position_that_is_not_of_this_history_is_refused(broker, clock):
    """A store restored from a backup would otherwise be read with rows left out."""
    broker.enqueue(some_jobs(clock, 1))
    end_all(broker, succeeded())

    with pytest.raises(Refused, match=r"is (ahead of this history, which has come to|no position)"):
        broker.reach(ATTEMPTS, after=f"{1 << 60:020d}")
    for given in ({"after": "one"}, {"until": "one"}):
        with pytest.raises(Refused, match="'one' is no position of this store"):
            broker.reach(ATTEMPTS, **given)


@pytest.mark.needs("one place")
def test_it_reaches_to_the_last_row(broker, clock):
    broker.enqueue(some_jobs(clock, 5))
    end_all(broker, succeeded())
    rows = broker.history()

    reach = broker.reach(ATTEMPTS)

    assert reach.position == rows[-1].position
    assert broker.reach(ATTEMPTS, after=reach.position).position == reach.position
    assert reach.store == broker.reach(EVENTS).store != ""


@pytest.mark.needs("one place")
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


def test_it_says_whether_so_many_rows_are_there(broker, clock):
    broker.enqueue(some_jobs(clock, 3))
    end_all(broker, succeeded())
    broker.act("retry", [])
    last = broker.history()[-1].position

    assert [broker.reach(ATTEMPTS, at_most=n).full for n in (1, 3, 4)] == [True, True, False]
    assert not broker.reach(ATTEMPTS).full
    assert not broker.reach(ATTEMPTS, last, at_most=1).full
    assert not broker.reach(EVENTS, at_most=1).full


@pytest.mark.needs("one place")
def test_it_is_never_behind_where_it_is_to_end(broker, clock):
    """Who compares two positions is the store."""
    broker.enqueue(some_jobs(clock, 5))
    for job in claim(broker, limit=5):
        broker.settle([(job, succeeded())])
    one, two, three, *_, last = [row.position for row in broker.history()]

    assert broker.reach(ATTEMPTS, until=two).position == two
    assert broker.reach(ATTEMPTS, until=last).position == last
    assert broker.reach(ATTEMPTS, three, until=two).position == three
    assert broker.reach(ATTEMPTS, one, at_most=1, until=three) == broker.reach(
        ATTEMPTS, one, at_most=1
    )
    few = broker.reach(ATTEMPTS, one, at_most=3, until=three)
    assert (few.position, few.full) == (three, False)


def test_two_stores_have_two_names(broker):
    from penstock.brokers.memory import MemoryBroker

    assert broker.reach(ATTEMPTS).store != MemoryBroker().reach(ATTEMPTS).store


@pytest.mark.needs("one place")
def test_a_reader_that_goes_by_it_misses_nothing_beside_many_writers(broker, clock):
    """I13: late committers are behind it."""
    broker.enqueue(some_jobs(clock, 200))
    done = threading.Event()
    read: list[str | None] = []

    def reader():
        after = BEGINNING
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
