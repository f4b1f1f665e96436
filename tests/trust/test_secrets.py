"""A canary secret is in no row of the store once its job has ended, and in no log, ever."""

from __future__ import annotations

import base64
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from penstock import App, RetryLater
from penstock.brokers import open_broker
from penstock.job import State, failed, put_back, succeeded
from penstock.run.attempt import run
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
def app() -> Iterator[App]:
    app = App("memory:")
    yield app
    app.close()


@pytest.fixture
def reopened(request: pytest.FixtureRequest, store: str) -> Callable[[], Any]:
    """Opens the store of `broker` once more."""
    if store == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path') / 'jobs.db'}"
    else:
        url = request.getfixturevalue("postgres_store_url")

    def again() -> Any:
        opened = open_broker(url)
        request.addfinalizer(opened.close)
        return opened

    return again


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


PEM = (
    "-----BEGIN KEY-----\n"
    + "\n".join(f"{n:03d}/ab+" * 8 for n in range(5))
    + "\n-----END KEY-----"
)
SPELLINGS: dict[str, Callable[[str], Any]] = {
    "plain": str,
    "bytes": lambda key: key.encode(),
    "quoted for a URL": quote,
    "stripped": lambda key: key.strip("-\nBEGINKYD "),
    "base64": lambda key: base64.b64encode(key.encode()),
    "half of a line": lambda key: key.splitlines()[2][:20],
    "a dictionary": lambda key: {"token": key},
    "reversed": lambda key: key[::-1],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_message_of_an_exception_is_not_kept(app: App, caplog, spelling: str):
    spelt = SPELLINGS[spelling]

    @app.task(secret=("key",))
    def sign(key: str) -> None:
        try:
            raise KeyError(spelt(key))
        except KeyError as error:
            raise ExceptionGroup(f"no: {spelt(key)}", [ValueError(spelt(key))]) from error

    caplog.set_level(logging.DEBUG)
    outcome = run(app, sign, sign.job(PEM))

    assert outcome is not None
    error = outcome.error or ""
    assert error.startswith("ExceptionGroup: message not kept, digest ")
    assert "test_secrets.py" in error
    assert "in sign" in error
    assert [name in error for name in ("KeyError", "ValueError")] == [True, True]
    assert str(spelt(PEM))[2:-2] not in error + caplog.text
    assert "spelt(key)" not in error


def test_the_same_message_has_the_same_digest_and_another_store_another(app: App):
    @app.task(secret=("key",))
    def sign(key: str) -> None:
        raise ValueError(key)

    def headline(on: App, key: str) -> str:
        outcome = run(on, sign, sign.job(key))
        return (outcome.error or "").splitlines()[0] if outcome else ""

    assert headline(app, "a-key") == headline(app, "a-key") != headline(app, "b-key")
    elsewhere = App("memory:")
    elsewhere.broker.traits.digest_key = lambda: b"another"
    assert headline(elsewhere, "a-key") != headline(app, "a-key")


def test_what_cannot_be_read_or_stored_or_is_put_off_says_nothing_either(app: App):
    @app.task(secret=("pin",))
    def pay(pin: int) -> int:
        raise RetryLater(5, f"the pin {pin} is locked")

    @app.task(secret=("pin",), name="fetch")
    def fetch(pin: int) -> int:
        return f"the pin is {pin}"  # pyright: ignore[reportReturnType]

    unread = pay.job(48151623).__class__(
        task=pay.name, body=b'{"args":{"pin":"4815-1623"},"secret":["pin"]}'
    )
    outcomes = [
        run(app, pay, unread),
        run(app, pay, pay.job(4815)),
        run(app, fetch, fetch.job(4815)),
    ]

    assert [outcome and outcome.reason for outcome in outcomes] == [
        "unreadable",
        "later",
        "unstorable",
    ]
    for outcome in outcomes:
        assert outcome is not None
        assert "message not kept" in (outcome.error or "")
        assert "4815" not in (outcome.error or "").partition("digest")[0]


def test_a_task_may_keep_its_messages(app: App):
    @app.task(secret=("key",), keep_messages=True)
    def sign(key: str) -> None:
        raise ValueError(f"the service is down for {key}")

    outcome = run(app, sign, sign.job("hunter2-canary"))

    assert outcome is not None
    assert (outcome.error or "").startswith("ValueError: the service is down for ***")


def test_a_job_that_declares_a_secret_itself_is_treated_alike(app: App):
    """SQL says `secret` with the job: the task need not."""

    @app.task
    def sign(key: str) -> None:
        raise ValueError(key[::-1])

    job = sign.job("k").__class__(task=sign.name, body=b'{"args":{"key":"xyz"},"secret":["key"]}')
    outcome = run(app, sign, job)

    assert outcome is not None
    assert "zyx" not in (outcome.error or "")


def test_the_key_of_digests_is_the_store_s_own(broker, reopened):
    assert len(broker.traits.digest_key()) == 32
    assert reopened().traits.digest_key() == broker.traits.digest_key()
