"""A canary secret is in no row of the store once its job has ended, and in no log, ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from penstock.job import State, failed, put_back, succeeded
from penstock.testing.conformance.factories import a_flow, a_job, begun, claim, part, settle

CANARY = "hunter2-canary"
BODY = b'{"args":{"token":"hunter2-canary"},"secret":["token"]}'


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def broker(request: pytest.FixtureRequest, store: str) -> Any:
    return request.getfixturevalue(f"{store}_broker")


@pytest.fixture
def places(request: pytest.FixtureRequest, store: str) -> Callable[[], set[str]]:
    """The tables that have the canary in a live row."""
    if store == "sqlite":
        path = request.getfixturevalue("tmp_path") / "jobs.db"
        return lambda: {table for table, row in _sqlite_rows(path) if CANARY in repr(row)}
    url = request.getfixturevalue("postgres_store_url")
    return lambda: {table for table, row in _postgres_rows(url) if CANARY in repr(row)}


def _sqlite_rows(path: Any) -> Iterator[tuple[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        tables = [
            name for (name,) in db.execute("select name from sqlite_master where type='table'")
        ]
        for table in tables:
            for row in db.execute(f"select * from {table}"):
                yield table, row


def _postgres_rows(url: str) -> Iterator[tuple[str, Any]]:
    with psycopg.connect(url) as db:
        listed = "select relname from pg_class where relnamespace = 'penstock'::regnamespace"
        tables = [name for (name,) in db.execute(f"{listed} and relkind in ('r', 'p')")]
        for table in tables:
            for row in db.execute(SQL("select * from penstock.{}").format(Identifier(table))):
                yield table, row


def test_the_canary_is_seen_while_the_job_waits(broker, clock, places):
    broker.enqueue([a_job(clock, body=BODY)])

    assert places()


@pytest.mark.parametrize("outcome", [succeeded(), failed("boom"), put_back("shutdown")])
@pytest.mark.parametrize("keep", [True, False])
def test_a_lease_that_holds_other_jobs_does_not_keep_it(broker, clock, places, outcome, keep):
    """Packed jobs are claimed together: the others of the lease may run for hours."""
    other = b'{"args":{"token":"one that runs for hours"},"secret":["token"]}'
    first, second = a_job(clock, body=BODY), a_job(clock, body=other)
    broker.enqueue([first, second])
    held = {job.id: job for job in claim(broker, limit=2)}
    assert places()

    outcome = begun(outcome, clock.now())
    settle(broker, held[first.id], msgspec.structs.replace(outcome, keep=keep))
    if outcome.state is State.READY:
        broker.act("cancel", [first.id])

    assert places() == set()
    assert broker.get(second.id).body == other
    assert settle(broker, held[second.id], begun(succeeded(), clock.now()))


def test_a_flow_that_is_deleted_while_it_runs_leaves_nothing(broker, clock, places):
    flow = a_flow(clock, many=part(jobs=2))
    broker.enqueue([a_job(clock)])
    for place, job in enumerate(flow.named["many"]):
        body = job.body.replace(b'{"args":{"n":%d}' % place, BODY[:-1])
        flow.named["many"][place] = job.__class__(task=job.task, id=job.id, body=body)
    flow.send(broker)
    assert len(claim(broker, limit=3)) == 3
    assert places()

    broker.act("delete", flow=flow.flow.id)

    assert places() == set()
