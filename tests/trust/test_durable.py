"""Which calls wait for the disk: enqueue and settle do, claims do not, relaxed queues may not.

What a store has not brought to the disk when a call returns can be lost in a power cut. On SQLite
the connection is asked what it waits for. PostgreSQL is asked how far its log is on the disk: its
log writer sleeps for ten seconds, so that whatever gets there is what a commit waited for.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from penstock import App, State, StoreUnreachable
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.views import Event
from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    claim_for,
    settle_and_claim_for,
    some_jobs,
)
from tests.brokers.postgres.examined import restart
from tests.stories.conftest import eventually

FULL, NORMAL = (2,), (1,)  # pragma synchronous


class OfSqlite:
    def __init__(self, broker) -> None:
        self.broker: Broker = broker
        self._writer = broker.store._writer

    def waited(self, call: Callable[[], object]) -> bool:
        """Whether what this call committed is on the disk when it returns."""
        call()
        mode = self._writer.execute("pragma journal_mode").fetchone()
        synchronous = self._writer.execute("pragma synchronous").fetchone()
        assert mode == ("wal",)
        assert synchronous in {FULL, NORMAL}
        return synchronous == FULL


class OfPostgres:
    def __init__(self, broker: PostgresBroker, looker: psycopg.Connection) -> None:
        self.broker: Broker = broker
        self._looker = looker

    def _position(self, which: str) -> int:
        statement = f"select pg_current_wal_{which}_lsn() - '0/0'"
        return int(self._looker.execute(statement.encode()).fetchone()[0])

    def waited(self, call: Callable[[], object]) -> bool:
        """Whether the log has come to the disk, up to where it stood before the call and beyond."""
        before = self._position("insert")
        call()
        return self._position("flush") > before


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, clock) -> Iterator[OfSqlite | OfPostgres]:
    if request.param == "sqlite":
        yield OfSqlite(request.getfixturevalue("sqlite_broker"))
        return
    server = request.getfixturevalue("own_postgres")
    restart(server, wal_writer_delay="10s", autovacuum="off", checkpoint_timeout="1h")
    url = server.create_database()
    broker = PostgresBroker(url, clock=clock)
    with psycopg.connect(url, autocommit=True) as looker:
        yield OfPostgres(broker, looker)
    broker.close()


def known(store, clock, queue: str = "default") -> None:
    """A first job of the lane has run: what is new about the lane is on the disk."""
    store.broker.enqueue([a_job(clock, queue=queue)])
    store.broker.settle([(job, succeeded()) for job in claim(store.broker)])


def held(store, clock, count: int = 1, **fields: object) -> list[Job]:
    store.broker.enqueue(some_jobs(clock, count, **fields))
    return claim(store.broker, count)


def test_enqueue_waits_for_the_disk(store, clock):
    known(store, clock)

    assert store.waited(lambda: store.broker.enqueue([a_job(clock)]))
    assert store.waited(lambda: store.broker.enqueue(some_jobs(clock, 300)))
    assert store.waited(lambda: store.broker.enqueue([a_job(clock, key="ada")]))


def test_the_first_enqueue_of_a_process_waits_too(store, clock):
    assert store.waited(lambda: store.broker.enqueue([a_job(clock)]))


def test_settle_waits_for_the_disk(store, clock):
    known(store, clock)

    for outcome in (succeeded(b"1"), failed("ValueError")):
        jobs = held(store, clock, 2)
        pairs = [(job, outcome) for job in jobs]
        assert store.waited(lambda pairs=pairs: store.broker.settle(pairs))


def test_outcomes_that_ride_with_a_claim_wait_for_the_disk(store, clock):
    known(store, clock)
    [job] = held(store, clock)

    def ride() -> None:
        settle_and_claim_for(store.broker, [(job, succeeded())], a_worker())

    assert store.waited(ride)


def test_a_claim_does_not_wait_unless_the_job_may_run_only_once(store, clock):
    known(store, clock)
    store.broker.enqueue([a_job(clock)])
    assert not store.waited(lambda: claim(store.broker))

    store.broker.enqueue([a_job(clock, at_most_once=True)])
    assert store.waited(lambda: claim(store.broker))


def test_a_relaxed_queue_does_not_wait(store, clock):
    store.broker.traits.relaxed = frozenset({"clicks", "views"})
    for queue in ("clicks", "views", "mail"):
        known(store, clock, queue)

    jobs = [*some_jobs(clock, 3, queue="clicks"), *some_jobs(clock, 3, queue="views")]
    assert not store.waited(lambda: store.broker.enqueue(jobs))
    taken = claim(store.broker, 6)
    assert not store.waited(lambda: store.broker.settle([(job, succeeded()) for job in taken]))


def test_a_relaxed_queue_waits_beside_any_other(store, clock):
    store.broker.traits.relaxed = frozenset({"clicks"})
    for queue in ("clicks", "mail"):
        known(store, clock, queue)

    jobs = [a_job(clock, queue="clicks"), a_job(clock, queue="mail")]
    assert store.waited(lambda: store.broker.enqueue(jobs))
    taken = claim(store.broker, 2)
    assert store.waited(lambda: store.broker.settle([(job, succeeded()) for job in taken]))


def test_what_a_reader_has_seen_is_on_the_disk(store, clock):
    """What was not waited for when it was written is waited for when it is read."""
    store.broker.traits.relaxed = frozenset({"clicks"})
    known(store, clock, "clicks")
    last = store.broker.history()[-1].position
    [job] = held(store, clock, queue="clicks")
    assert not store.waited(lambda: store.broker.settle([(job, succeeded())]))
    seen: list[Event] = []

    waited = store.waited(lambda: seen.extend(store.broker.history(last)))

    assert [event.job for event in seen] == [job.id]
    assert waited or isinstance(store, OfSqlite)  # there, the exception


@pytest.mark.parametrize("relaxed", [False, True])
def test_the_app_that_makes_the_call_decides(store, relaxed):
    app = App(broker=store.broker)
    app.queue("clicks", relaxed=relaxed)

    @app.task(queue="clicks")
    def click(n: int) -> None: ...

    click.enqueue(1)
    store.broker.settle([(job, succeeded()) for job in claim(store.broker)])

    assert store.waited(lambda: click.enqueue(2)) is not relaxed


PRODUCER = """
import os, signal, sys
from penstock import App

app = App(sys.argv[1])
app.queue("clicks", relaxed=True)

@app.task(name="click", queue="clicks")
def click(n: int) -> None: ...

print(*[click.enqueue(n).id for n in range(20)], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_process_loses_nothing_of_a_relaxed_queue(request, tmp_path, kind):
    url = f"sqlite:///{tmp_path}/jobs.db"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")

    ran = subprocess.run(
        [sys.executable, "-c", PRODUCER, url], capture_output=True, text=True, check=False
    )

    assert ran.returncode == -signal.SIGKILL, ran.stderr
    app = App(url)
    stored = {job.id for job in app.broker.find(Filter(state=(State.READY,))).jobs}
    app.close()
    assert len(stored) == 20
    assert stored == set(ran.stdout.split())


def test_a_crash_of_the_server_loses_of_relaxed_queues_alone(own_postgres):
    """And what it lost of them runs again, or was never there: nothing in between."""
    restart(own_postgres, wal_writer_delay="10s", autovacuum="off", checkpoint_timeout="1h")
    url = own_postgres.create_database()
    app = App(url)
    app.queue("clicks", relaxed=True)

    @app.task(name="click", queue="clicks")
    def click(n: int) -> None: ...

    @app.task(name="mail", queue="mail")
    def mail(n: int) -> None: ...

    first = click.enqueue(0)
    mail.enqueue(0)  # waits for the disk, and what came before it is there then
    row = a_worker(tasks={"click": 1, "mail": 1})
    held = claim_for(app.broker, row, limit=2)
    app.broker.settle([(job, succeeded()) for job in held if job.task == "mail"])
    app.broker.settle([(job, succeeded()) for job in held if job.task == "click"])
    last = click.enqueue(1)

    own_postgres.kill()
    own_postgres.start()
    app.close()
    app = App(url)

    states = {job.id: job.state for job in eventually(lambda: look(app))}
    app.close()
    assert states.pop(next(job.id for job in held if job.task == "mail")) is State.SUCCEEDED
    assert states == {first.id: State.RUNNING}  # its end is lost: its worker's lease will lapse
    assert last.id not in states


def look(app: App) -> list[Job]:
    try:
        return list(app.broker.find(Filter()).jobs)
    except StoreUnreachable:
        return []


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("queue", ["clicks", "mail"])
def test_inside_your_own_transaction_your_own_setting_applies(postgres_store_url, setting, queue):
    app = App(postgres_store_url)
    app.queue("clicks", relaxed=True)

    @app.task(name="click", queue=queue)
    def click(n: int) -> None: ...

    with psycopg.connect(postgres_store_url) as mine:
        mine.execute(f"set local synchronous_commit = {setting}".encode())
        click.options(connection=mine).enqueue(1)
        assert mine.execute("show synchronous_commit").fetchone() == (setting,)
    app.close()


@pytest.mark.parametrize("setting", [FULL, NORMAL])
@pytest.mark.parametrize("queue", ["clicks", "mail"])
def test_inside_your_own_transaction_on_a_file_too(tmp_path, setting, queue):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.queue("clicks", relaxed=True)

    @app.task(name="click", queue=queue)
    def click(n: int) -> None: ...

    click.enqueue(1)
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as mine:
        mine.execute(f"pragma synchronous = {setting[0]}")
        mine.execute("begin")
        click.options(connection=mine).enqueue(2)
        mine.execute("commit")
        assert mine.execute("pragma synchronous").fetchone() == setting
    app.close()
