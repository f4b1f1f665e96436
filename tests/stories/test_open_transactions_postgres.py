"""Somebody's transaction stays open: a reader with a snapshot, a writer with a number.

Nothing is stuck and live views see everything. History alone waits for the writer, for it may yet
commit rows that come before; then it catches up, with nothing missed.
"""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from penstock import State
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.recovery import make_days
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_job, a_worker, claim, some_jobs
from tests.stories.conftest import Load, Story, eventually


def live_views_work(story: Story, seconds: float) -> None:
    until = time.monotonic() + seconds
    number = 1_000_000
    while time.monotonic() < until:
        number += 1
        handle = story.task("nap").enqueue(number)
        assert handle.result(timeout=60) == number
        assert story.broker.get(handle.id).state is State.SUCCEEDED
        assert [row.state for row in story.attempts(handle.id)] == [State.SUCCEEDED]
        assert "succeeded" in story.broker.why(handle.id).sentence
        assert story.broker.find(Filter(state=(State.SUCCEEDED,)), limit=10).jobs
        assert sum(count.running for count in story.broker.count()) < 100
        time.sleep(0.05)


def hold_a_snapshot(story: Story, seconds: float) -> None:
    story.start(processes=1)
    load = Load(story)
    eventually(lambda: len(story.ledger()) > 100)
    with psycopg.connect(story.url) as reader:
        reader.execute("set transaction isolation level repeatable read")
        [(before,)] = reader.execute("select count(*) from penstock.history").fetchall()

        live_views_work(story, seconds)

        assert len(story.attempts()) > before  # a reader that writes nothing holds back nobody
        [(still,)] = reader.execute("select count(*) from penstock.history").fetchall()
        assert still == before
    everything_in_history(story, load.stop())


def hold_a_number(story: Story, seconds: float) -> None:
    story.start(processes=1)
    load = Load(story)
    eventually(lambda: len(story.ledger()) > 100)
    pages: list[Position] = []
    over = threading.Event()

    def follow() -> None:
        """Read on from the last position, as a pipeline does."""
        while True:
            ending = over.is_set()
            page = story.broker.history(pages[-1] if pages else BEGINNING, 10_000)
            pages.extend(event.position for event in page)
            if ending and not page:
                return
            time.sleep(0.01)

    reader = threading.Thread(target=follow)
    reader.start()
    with psycopg.connect(story.url) as writer:
        writer.execute("create table theirs (n int)")
        time.sleep(1.5)  # what comes before it may still be on its way to the reader
        bound = len(pages)

        live_views_work(story, seconds)

        assert len(pages) == bound  # it waits
        assert load.accepted
        row = writer.execute("select count(*) from penstock.history").fetchone()
        assert row is not None
        assert row[0] > bound + 50  # although there is more
        writer.commit()
    accepted = load.stop()
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)
    over.set()
    reader.join(30)
    assert pages == sorted(set(pages))
    assert pages == [event.position for event in whole_history(story.broker)]
    everything_in_history(story, accepted)


def whole_history(broker: PostgresBroker) -> list:
    rows: list = []
    while page := broker.history(rows[-1].position if rows else BEGINNING, 10_000):
        rows += page
    return rows


def everything_in_history(story: Story, accepted: list[str]) -> None:
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)
    successes = story.successes()
    assert set(accepted) <= set(successes)
    assert set(successes.values()) == {1}
    assert story.counted() == {}


# On a server of their own: what is open holds back the history of a whole server.
def test_a_reader_s_snapshot_that_stays_open(own_story):
    hold_a_snapshot(own_story, seconds=2)


def test_a_writer_s_transaction_that_stays_open(own_story):
    hold_a_number(own_story, seconds=2)


@pytest.mark.soak
def test_a_reader_s_snapshot_that_stays_open_for_minutes(own_story):
    hold_a_snapshot(own_story, seconds=180)


@pytest.mark.soak
def test_a_writer_s_transaction_that_stays_open_for_minutes(own_story):
    hold_a_number(own_story, seconds=180)


def test_a_writer_in_another_database_of_the_server_is_waited_for_too(own_postgres, clock):
    """Transactions are numbered for the whole server; it returns what comes before, and no more."""
    broker = PostgresBroker(own_postgres.create_database(), clock=clock)
    broker.enqueue(some_jobs(clock, 2))
    first, second = claim(broker, 2)
    broker.settle([(first, succeeded())])
    before = [event.job for event in broker.history()]
    with psycopg.connect(own_postgres.create_database()) as stranger:
        stranger.execute("create table theirs (n int)")
        broker.settle([(second, succeeded())])

        during = [event.job for event in broker.history()]
        of_one_job = [event.job for event in broker.history(job=second.id)]

    after = [event.job for event in broker.history()]
    broker.close()
    assert before == during == [first.id]
    assert of_one_job == [second.id]
    assert after == [first.id, second.id]


def test_a_prune_beside_an_open_reader_holds_nobody_up(own_postgres, clock):
    """A day that somebody reads is not waited for."""
    url = own_postgres.create_database()
    broker = PostgresBroker(url, clock=clock)
    for _ in range(3):
        broker.enqueue(some_jobs(clock, 5))
        broker.settle([(job, succeeded()) for job in claim(broker, 5)])
        make_days(broker.store)
        clock.advance(days=1)
    with psycopg.connect(url) as reader:
        reader.execute("select count(*) from penstock.history").fetchall()

        began = time.monotonic()
        broker.prune(clock.now() - 1.5 * 86400)
        job = a_job(clock)
        broker.enqueue([job])
        [held] = claim(broker)
        assert broker.settle([(held, succeeded())]) == [True]
        assert time.monotonic() - began < 10

    assert broker.get(job.id).state is State.SUCCEEDED
    broker.renew([a_worker()])
    broker.close()
