"""What is held by a worker that was given up while its claim was under way."""

from __future__ import annotations

import psycopg
import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.job import State
from penstock.testing.conformance.factories import a_worker, claim, enqueue_and_claim

FIELDS = pytest.mark.parametrize("fields", [{}, {"key": "ada"}], ids=["packed", "row"])


@pytest.fixture
def sessions(postgres_broker, postgres_store_url):
    """A session beside the broker's own."""
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        yield connection


def give_up(connection: psycopg.Connection, clock, worker: str) -> None:
    """As recover does, a moment before the claim is committed."""
    connection.execute(
        "update penstock.worker set gone = %s, alive_until = 0 where id = %s", (clock.now(), worker)
    )


@FIELDS
def test_workers_that_find_nothing_to_do_find_it(
    postgres_broker, postgres_store_url, clock, sessions, fields
):
    job = enqueue_and_claim(postgres_broker, clock, **fields)
    give_up(sessions, clock, "worker-1")
    broker = PostgresBroker(postgres_store_url, clock=clock)
    assert claim(broker, worker="worker-2") == []
    clock.advance(seconds=10)
    broker.renew([a_worker("worker-2")])
    clock.advance(seconds=10)

    assert claim(broker, worker="worker-2") == []
    assert broker.recover(by="worker-2") == 1

    assert broker.get(job.id).state is State.READY
    broker.close()


def test_what_is_held_by_a_worker_that_is_there_is_no_news(
    postgres_broker, postgres_store_url, clock, sessions
):
    enqueue_and_claim(postgres_broker, clock)
    enqueue_and_claim(postgres_broker, clock, key="ada")

    assert sessions.execute("select penstock.stranded()").fetchone() == (False,)


@FIELDS
def test_a_worker_that_is_back_by_the_time_keeps_what_it_holds(
    postgres_broker, postgres_store_url, clock, sessions, fields
):
    job = enqueue_and_claim(postgres_broker, clock, **fields)
    give_up(sessions, clock, "worker-1")
    with psycopg.connect(postgres_store_url) as other:
        other.execute("update penstock.worker set gone = 0, alive_until = 1e12")

        assert postgres_broker.recover() == 0

    assert postgres_broker.recover() == 0
    assert postgres_broker.get(job.id).state is State.RUNNING


@FIELDS
def test_a_worker_that_holds_something_is_not_forgotten(postgres_broker, clock, sessions, fields):
    enqueue_and_claim(postgres_broker, clock, **fields)
    give_up(sessions, clock, "worker-1")
    clock.advance(days=3)

    postgres_broker.prune(clock.now() - 86400)
    assert sessions.execute("select id from penstock.worker").fetchall() == [("worker-1",)]
    assert postgres_broker.recover() == 1
    clock.advance(days=3)
    postgres_broker.prune(clock.now() - 86400)

    assert sessions.execute("select id from penstock.worker").fetchall() == []


def test_a_worker_of_which_nothing_is_known_holds_nothing(postgres_broker, clock, sessions):
    job = enqueue_and_claim(postgres_broker, clock)
    sessions.execute("delete from penstock.worker")

    assert postgres_broker.recover() == 1

    assert postgres_broker.get(job.id).state is State.READY
