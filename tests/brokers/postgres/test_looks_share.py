"""Looks of a dashboard: they wait outside of a transaction, and the server ends what takes long."""

from __future__ import annotations

import psycopg
import pytest

from penstock.broker.filter import Filter
from penstock.broker.read_budget import SAVED_SECONDS, Share
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres import store as postgres_store
from penstock.errors import StoreUnreachable
from penstock.testing.conformance.factories import a_job

OPEN = """
    select count(*)
      from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
       and application_name = 'penstock'
"""


@pytest.fixture
def broker(postgres_url, clock):
    broker = PostgresBroker(postgres_url, clock=clock)
    yield broker
    broker.close()


def test_whoever_rests_holds_no_transaction(broker, clock, postgres_url):
    broker.enqueue([a_job(clock)])
    rests = []
    with psycopg.connect(postgres_url, autocommit=True) as watching:

        def rest(seconds):
            [(held,)] = watching.execute(OPEN)
            rests.append((seconds, held))

        share = Share(sleep=rest)
        with share.look() as spent:
            spent.seconds = 60.0
        with share.within():
            assert len(broker.find(Filter()).jobs) == 1
            assert len(broker.count()) == 1

    assert len(rests) == 3
    assert all(seconds > 0 and held == 0 for seconds, held in rests[1:])


def test_what_the_server_took_is_counted(broker):
    rests = []
    share = Share(clock=lambda: 0.0, sleep=rests.append)
    with share.within(), broker.store.reading() as db:
        db.execute("select pg_sleep(%s)", (2 * SAVED_SECONDS,))

    with share.within():
        broker.count()

    assert rests[0] == 0
    assert rests[1] > 0


def test_a_question_that_takes_too_long_is_ended_by_the_server(broker, monkeypatch):
    monkeypatch.setattr(postgres_store, "LONGEST_QUESTION", 0.05)

    with (
        Share().within(),
        pytest.raises(StoreUnreachable, match="statement timeout"),
        broker.store.reading() as db,
    ):
        db.execute("select pg_sleep(60)")

    assert broker.count() == []


def test_who_has_no_share_may_take_longer(broker, monkeypatch):
    monkeypatch.setattr(postgres_store, "LONGEST_QUESTION", 0.05)

    with broker.store.reading() as db:
        assert db.execute("select pg_sleep(0.2)").fetchone() is not None
