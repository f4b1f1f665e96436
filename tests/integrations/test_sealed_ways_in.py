"""An app with a key ring: whichever way a job comes in, it is encrypted, or it is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import errors

from penstock import App, KeyRing, Refused
from penstock.broker.filter import Filter
from penstock.brokers import open_broker
from penstock.enqueue.copy import enqueue_copy
from penstock.job import State
from penstock.testing.conformance.factories import a_job
from tests.integrations.callers import CALLERS, Plain
from tests.workers import drain

CANARY = "hunter2-canary"
KEYS = KeyRing(b"k" * 32)


@pytest.fixture
def url(postgres_store_url: str) -> str:
    return postgres_store_url


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url, name="shop", keys=KEYS)
    yield app
    app.close()


@pytest.fixture
def echo(app: App) -> Any:
    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    return echo


def bodies_in(url: str) -> list[bytes]:
    """As they are stored."""
    broker = open_broker(url)
    found = broker.find(Filter(), limit=1000).jobs
    broker.close()
    return [job.body for job in found]


@pytest.fixture(params=CALLERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Plain]:
    return request.param


def test_a_job_in_the_callers_transaction_is_sealed(app, echo, url, kind):
    """options(connection=...), with every driver."""
    _ = app.broker

    async def story() -> None:
        caller = kind()
        await caller.open(url)
        await caller.enqueue(echo, CANARY)
        await caller.enqueue_job(app, echo.job(CANARY))
        await caller.commit()
        await caller.close()

    asyncio.run(story())

    bodies = bodies_in(url)
    assert len(bodies) == 2
    assert all(b"$sealed" in body and CANARY.encode() not in body for body in bodies)
    drain(app)
    ended = app.broker.find(Filter(), limit=10).jobs
    assert [job.result for job in ended] == [f'"{CANARY}"'.encode()] * 2


def test_a_job_in_a_transaction_of_sqlite_is_sealed(tmp_path):
    """The store is that file: what marks the app must not wait for the caller's transaction."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}", keys=KEYS)

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    _ = app.broker
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as caller:
        caller.execute("create table orders (n integer)")
        caller.execute("insert into orders values (1)")
        echo.options(connection=caller).enqueue(CANARY)
        echo.options(connection=caller).enqueue_many([(CANARY,)] * 3)
        caller.commit()

    assert [CANARY.encode() in body for body in bodies_in(app.resolved_url.url)] == [False] * 4
    app.close()


@pytest.mark.parametrize("id", [None, "import-1"])
def test_rows_of_enqueue_many_are_sealed(app, echo, url, id):
    for _ in range(2):
        echo.enqueue_many([(CANARY,)] * 20, id=id)
    echo.options(key="ada").enqueue_many([(CANARY,)] * 2)

    bodies = bodies_in(url)
    assert len(bodies) == (42 if id is None else 22)
    assert all(b"$sealed" in body and CANARY.encode() not in body for body in bodies)


def test_sql_has_no_key_and_is_refused(app, echo, url):
    call = "select penstock.enqueue('echo', '{\"text\": \"hunter2\"}', app => %s)"
    with psycopg.connect(url, autocommit=True) as db:
        _ = app.broker
        db.execute(call, ["shop"])  # nobody has encrypted anything yet
        echo.enqueue(CANARY)

        with pytest.raises(errors.InvalidParameterValue, match="app 'shop' encrypts its jobs, and"):
            db.execute(call, ["shop"])
        db.execute(call, ["other"])


def test_a_worker_of_the_app_marks_it_too(app, echo, url):
    """Where jobs only join callers' transactions, nobody else does."""
    _ = app.broker
    with psycopg.connect(url) as caller:
        echo.options(connection=caller).enqueue(CANARY)
        caller.commit()
    assert app.broker.traits.sealed_apps() == frozenset()

    drain(app)

    assert app.broker.traits.sealed_apps() == {"shop"}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def marked(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_broker")


def test_an_app_that_does_not_encrypt_any_more_is_forgotten(marked, clock):
    app = App(broker=marked, name="shop", keys=KEYS)
    app.broker.enqueue([a_job(clock, app="shop")])
    assert marked.traits.sealed_apps() == {"shop"}
    clock.advance(86400)
    app.broker.enqueue([a_job(clock, app="shop")])  # marked again: the day is over
    clock.advance(86400)

    marked.prune(clock.now() - 1.5 * 86400)
    assert marked.traits.sealed_apps() == {"shop"}
    marked.prune(clock.now())
    assert marked.traits.sealed_apps() == frozenset()


def test_a_copy_by_a_program_without_the_key_is_refused(marked, clock):
    """Of a job that was stored in clear text, before the app had a key ring."""
    old = a_job(clock, app="shop", body=b'{"args":{"text":"x"}}')
    marked.enqueue([old])
    marked.act("cancel", [old.id])
    app = App(broker=marked, name="shop", keys=KEYS)
    app.broker.enqueue([a_job(clock, app="shop")])

    with pytest.raises(Refused, match="its app encrypts its jobs, and there is no key"):
        enqueue_copy(marked, old.id, ("ada", ""))

    copied = enqueue_copy(app.broker, old.id, ("ada", ""))
    assert b"$sealed" in marked.get(copied).body


def test_a_stage_of_a_write_is_sealed(marked, clock):
    app = App(broker=marked, name="shop", keys=KEYS)
    job = a_job(clock, app="shop", body=b'{"args":{"text":"hunter2"}}')

    app.broker.stage("write", "part", [job])
    app.broker.commit_write("write", {"part": 1})

    assert b"hunter2" not in marked.get(job.id).body
    assert marked.get(job.id).state is State.READY
    assert marked.traits.sealed_apps() == {"shop"}
