"""Flows are stored as a whole, once, and join the transactions of others."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest

from penstock import Refused, State, UnknownOutcome
from penstock.brokers.memory import MemoryBroker
from tests.compose.compose_tasks import app, double, total


def test_the_same_flow_sent_again_is_stored_once(t):
    job = total.job(double.map([1, 2]).output)
    job.enqueue()

    handle = job.enqueue()
    t.drain()
    job.enqueue()

    assert t.drain() == []
    assert handle.result() == 6
    assert len(t.jobs()) == 3


def test_a_bad_member_stores_nothing(t):
    bad = double.options(unique="x").job(1)

    with pytest.raises(Refused, match="unique"):
        double.job(bad.output).enqueue()

    assert t.jobs() == []


def test_a_flow_and_other_jobs_are_stored_together(t):
    handles = app.enqueue([double.job(1), double.job(double.job(2).output), double.map([5, 6])])
    t.drain()

    assert [handle.result() for handle in handles] == [2, 8, 10, 12]


def test_flows_are_enqueued_from_an_event_loop_too(t):
    async def enqueue() -> Any:
        return await double.enqueue_async(double.job(4).output)

    handle = asyncio.run(enqueue())
    t.drain()

    assert handle.result() == 16


def test_a_store_without_transactions_refuses_to_be_joined():
    with app.testing(), pytest.raises(Refused, match="no transaction to join"):
        app.enqueue([double.job(double.job(1).output)], connection=object())


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_flow_joins_the_callers_transaction(request, tmp_path, store, commits):
    connection: Any
    if store == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    else:
        url = request.getfixturevalue("postgres_store_url")
    with app.testing(url=url) as t:
        t.drain()
        connect = sqlite3.connect if store == "sqlite" else psycopg.connect
        connection = connect(tmp_path / "jobs.db" if store == "sqlite" else url)
        if store == "sqlite":
            connection.execute("begin immediate")
        job = total.job(double.map(range(200)).output)

        [handle] = app.enqueue([job], connection=connection)
        other = total.options(connection=connection).enqueue([double.job(4).output])
        connection.commit() if commits else connection.rollback()
        connection.close()

        t.drain()
        assert handle.state() is (State.SUCCEEDED if commits else None)
        assert other.state() is (State.SUCCEEDED if commits else None)
        assert (t.broker.flow(job.id) is not None) is commits


def test_a_flow_joins_an_asynchronous_transaction(postgres_store_url):
    async def enqueue() -> Any:
        connection = await psycopg.AsyncConnection.connect(postgres_store_url)
        async with connection:
            task = total.options(connection=connection)
            return await task.enqueue_async(double.map([1, 2]).output)

    with app.testing(url=postgres_store_url) as t:
        t.drain()
        handle = asyncio.run(enqueue())
        t.drain()

        assert handle.result() == 6


class LosesAnswers(MemoryBroker):
    """Stores, and is cut off before it can say so."""

    lost = 0

    def enqueue(self, jobs: Any, **options: Any) -> Any:
        answer = super().enqueue(jobs, **options)
        if self.lost:
            self.lost -= 1
            raise UnknownOutcome("cut off", jobs)
        return answer


def test_a_flow_whose_answer_was_lost_can_be_sent_again(clock):
    broker = LosesAnswers(clock)
    broker.lost = 1
    with app.replace_broker(broker):
        job = total.job(double.map([1, 2]).output)
        with pytest.raises(UnknownOutcome) as lost:
            job.enqueue()

        assert lost.value.jobs == [job]
        [handle] = app.enqueue(lost.value.jobs)

        assert handle.id == job.id
        assert len(broker.flow(job.id).nodes) == 2
