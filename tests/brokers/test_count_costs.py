"""Counting costs the same, however many jobs there are: what is counted is sums, not jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from penstock.brokers.postgres.recovery import fold
from penstock.brokers.postgres.statements import sql as postgres_sql
from penstock.brokers.sqlite.statements import sql as sqlite_sql
from penstock.job import Parcel
from penstock.testing.conformance.factories import a_job, an_id, claim, some_jobs


def sums_of_sqlite(broker) -> int:
    with closing(sqlite3.connect(broker.store.path)) as connection:
        return len(connection.execute(sqlite_sql.count).fetchall())


def sums_of_postgres(broker) -> int:
    fold(broker.store)  # as its workers do every few seconds
    with psycopg.connect(broker.store.url) as connection:
        return len(connection.execute(postgres_sql.count).fetchall())


SUMS = {"sqlite": sums_of_sqlite, "postgres": sums_of_postgres}


@pytest.mark.parametrize("kind", SUMS)
def test_ten_thousand_jobs_are_as_many_sums_as_ten(request, clock, kind):
    """D40, D41: where the jobs are is not looked at."""
    broker = request.getfixturevalue(f"{kind}_broker")
    broker.enqueue(some_jobs(clock, 5))
    broker.enqueue(some_jobs(clock, 5, tags={"tenant": "a"}))
    claim(broker, 1)
    few = SUMS[kind](broker)
    lane = a_job(clock).lane
    broker.enqueue([Parcel(an_id(clock), lane, [b"{}"] * 1000) for _ in range(10)])
    broker.enqueue(some_jobs(clock, 500, tags={"tenant": "a"}))
    claim(broker, 1)

    [count] = broker.count()

    assert (count.ready, count.running) == (10_508, 2)
    assert SUMS[kind](broker) == few
    statement = {"sqlite": sqlite_sql, "postgres": postgres_sql}[kind].count
    assert statement.count("from penstock") == 1
    assert "tally" in statement
