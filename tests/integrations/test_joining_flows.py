"""A flow is committed with the caller's own data, all of it or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import State, succeeded
from penstock.testing.conformance.factories import a_flow, a_job, a_worker, claim_for, ids_of, part


class Place:
    """A store, and a connection of somebody else's to the same database."""

    def __init__(self, broker: Broker, connection: Any) -> None:
        self.broker = broker
        self.connection = connection

    def send(self, flow: Any) -> Any:
        return self.broker.enqueue(flow.jobs, connection=self.connection, flow=flow.flow)

    def run(self) -> list[str]:
        ran: list[str] = []
        while jobs := claim_for(self.broker, a_worker(), None, 10):
            self.broker.settle([(job, succeeded()) for job in jobs])
            ran += ids_of(jobs)
        return ran


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        broker = open_broker(url)
        connection: Any = sqlite3.connect(tmp_path / "jobs.db")
    else:
        url = request.getfixturevalue("postgres_store_url")
        broker = open_broker(url)
        connection = psycopg.connect(url)
    yield Place(broker, connection)
    connection.close()
    broker.close()


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def flow(request: pytest.FixtureRequest) -> Any:
    return a_flow(
        SYSTEM_CLOCK,
        first=part(jobs=3, **request.param),
        also=part(**request.param),
        last=part("first", "also", **request.param),
    )


def test_it_is_there_if_and_only_if_the_caller_commits(place, flow):
    place.send(flow)
    assert place.connection.execute("select 1").fetchone() == (1,)
    place.connection.rollback()
    assert place.broker.flow(flow.flow.id) is None
    assert place.run() == []

    assert place.send(flow).known == frozenset()
    place.connection.commit()

    assert flow.states(place.broker, "last") == [State.WAITING]
    assert flow.row(place.broker, "last").needs_left == 2
    assert sorted(place.run()) == sorted(flow.ids("first", "also", "last"))
    assert place.broker.flow(flow.flow.id).ended_at is not None


def test_sent_again_it_is_known(place, flow):
    place.send(flow)
    place.connection.commit()
    everything = frozenset(flow.ids("first", "also", "last"))

    assert place.send(flow).known == everything
    place.connection.commit()
    assert flow.send(place.broker).known == everything

    assert sorted(place.run()) == sorted(everything)


def test_one_of_which_a_part_is_known_is_refused_and_the_caller_goes_on(place, flow):
    place.broker.enqueue([flow.named["also"][0]])
    stands = a_job(SYSTEM_CLOCK)

    place.broker.enqueue([stands], connection=place.connection)
    with pytest.raises(Refused, match="was enqueued before, without this flow"):
        place.send(flow)
    place.connection.commit()

    assert place.broker.flow(flow.flow.id) is None
    assert sorted(place.run()) == sorted([flow.ids("also")[0], stands.id])
