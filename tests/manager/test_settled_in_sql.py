"""V36: what a receiver settles in SQL, in a transaction of its own, its manager knows at once."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job
from penstock.manager import dispatch
from penstock.manager.contract import receivers_pb2 as contract
from penstock.manager.server import Manager
from penstock.rules.rule import Rule, RuleKind
from tests.manager.test_receivers import until


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(postgres_url)
    yield broker
    broker.close()


@pytest.fixture
def serving(store, monkeypatch):
    """A manager that hears of changes, and looks for nothing by itself."""
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 3600.0)
    with Manager(store, "127.0.0.1:0") as manager:
        yield manager


def settle(url: str, job) -> bool:
    with psycopg.connect(url) as connection:
        call = "select penstock.settle(%s, %s, 'succeeded')"
        [[settled]] = connection.execute(call, (job.id, job.attempt)).fetchall()
        return settled


def held(manager: Manager) -> list[tuple[int, int]]:
    return [(free, jobs) for _, free, jobs in manager.dispatch.receivers()]


def test_its_manager_drops_its_copy(store, serving, connect, postgres_url):
    """A receiver that settles in SQL need not say so again; it is not counted as busy."""
    receiver = connect(serving, credits=2)
    store.enqueue([Job(task="mail:send"), Job(task="mail:send")])
    first, second = receiver.jobs(2)
    until(lambda: held(serving) == [(0, 2)])

    assert settle(postgres_url, first)

    until(lambda: held(serving) == [(0, 1)])
    assert receiver.settle(first, succeed=contract.Succeed()) == "STALE"
    assert receiver.settle(second, succeed=contract.Succeed()) == "SETTLED"


def test_what_it_made_room_for_is_handed_out(store, serving, connect, postgres_url):
    store.put(Rule(RuleKind.LIMIT, queue="default", running=1))
    receiver = connect(serving, credits=2)
    store.enqueue([Job(task="mail:send"), Job(task="mail:send")])
    [first] = receiver.jobs()

    assert settle(postgres_url, first)

    [second] = receiver.jobs()
    assert second.id != first.id
