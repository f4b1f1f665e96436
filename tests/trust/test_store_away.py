"""The store is away while a job runs: the job waits, and is put back if that takes too long."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest

from penstock import App, State, StoreUnreachable, UnknownOutcome, current_job
from penstock.app.store_retry import Patience
from penstock.job import Job
from tests.stories.conftest import eventually
from tests.stories.proxy import Proxy
from tests.workers import attempts, working

AWAY_SECONDS = 2.0


class Away:
    """A store that can be sent away.

    `app` is the one whose jobs run, `beside` one that looks at the store on a way of its own.
    """

    app: App
    url: str
    outage: Callable[[], None]

    def __init__(self, url: str) -> None:
        self.url = url
        self.beside = App(url)
        assert self.beside.broker

    def ended(self, id: str) -> Job[Any]:
        """The job, once it has."""
        return eventually(lambda: self._ended(id))

    def _ended(self, id: str) -> Job[Any] | None:
        job = self.beside.broker.get(id)
        return job if job and job.ended_at else None

    def attempts(self, id: str) -> list[tuple[State | None, str | None]]:
        return attempts(self.beside, id)

    def children(self) -> int:
        """How many jobs the job has made."""
        return sum(count.ready for count in self.beside.broker.count() if count.task == "child")

    def begin(self) -> None:
        """From here on the store answers nobody who writes."""

    def end(self) -> None:
        """It answers again."""

    def for_two_seconds(self) -> None:
        self.begin()
        threading.Timer(AWAY_SECONDS, self.end).start()


class LockedFile(Away):
    """Another program holds the file."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = App(url)
        self.app.broker.store.busy_seconds = 0.2
        path = url.removeprefix("sqlite:///")
        self._other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def begin(self) -> None:
        self._other.execute("pragma busy_timeout = 10000")
        self._other.execute("begin immediate")

    def end(self) -> None:
        with suppress(sqlite3.OperationalError):  # it was let go of before
            self._other.execute("rollback")

    def close(self) -> None:
        self.end()
        self.app.close()
        self.beside.close()
        self._other.close()


class CutLine(Away):
    """Nothing gets through to the server."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._proxy = Proxy(url)
        self.app = App(self._proxy.url)
        assert self.app.broker

    def begin(self) -> None:
        self._proxy.cut_nth(0, "before", times=1_000_000)
        self._proxy.hang_up_all()

    def hang_up(self) -> None:
        """The connections there are end; new ones work."""
        self._proxy.hang_up_all()

    def end(self) -> None:
        self._proxy.heal()

    def close(self) -> None:
        self.end()
        self.app.close()
        self.beside.close()
        self._proxy.close()


@pytest.fixture(params=[LockedFile, CutLine], ids=["sqlite", "postgres"])
def away(request: pytest.FixtureRequest, tmp_path) -> Iterator[Any]:
    if request.param is LockedFile:
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        url = request.getfixturevalue("postgres_store_url")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop table if exists effects")
    place = request.param(url)
    yield place
    place.close()
    if request.param is CutLine:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop table if exists effects")


def table(away: Away) -> None:
    statement = "create table effects (n integer)"
    if away.url.startswith("sqlite"):
        with closing(sqlite3.connect(away.url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
    else:
        with psycopg.connect(away.url) as connection:
            connection.execute(statement)


def effects(away: Away) -> list[int]:
    if away.url.startswith("sqlite"):
        with closing(sqlite3.connect(away.url.removeprefix("sqlite:///"))) as connection:
            return [n for (n,) in connection.execute("select n from effects order by n")]
    with psycopg.connect(away.url) as connection:
        return [n for (n,) in connection.execute("select n from effects order by n")]


# What a task may ask of its store. Each is called when the store has just gone away.


def step(child: Any) -> None:
    assert current_job().step("one", lambda: 1) == 1


def snapshot(child: Any) -> None:
    current_job().snapshot({"at": 5})


def event(child: Any) -> None:
    current_job().event("noticed", at=5)


def progress(child: Any) -> None:
    current_job().progress(0.5, "half")


def enqueue(child: Any) -> None:
    child.options(key="a").enqueue()


def enqueue_plain(child: Any) -> None:
    child.enqueue()


def enqueue_many(child: Any) -> None:
    child.enqueue_many([()])


def enqueue_many_under_an_id(child: Any) -> None:
    child.enqueue_many([()], id="these")


def spawn(child: Any) -> None:
    current_job().spawn([child.job()])


def transaction(child: Any) -> None:
    with current_job().transaction() as connection:
        connection.execute("insert into effects values (1)")


CALLS: list[Callable[[Any], None]] = [
    *(step, snapshot, event, progress, enqueue, enqueue_plain),
    *(enqueue_many, enqueue_many_under_an_id, spawn, transaction),
]
MEETS = [call for call in CALLS if call not in (progress, spawn)]  # those that ask at once


async def enqueue_async(child: Any) -> None:
    await child.enqueue_async()


async def step_async(child: Any) -> None:
    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    assert await current_job().step("one", one) == 1


def make_tasks(away: Away, call: Callable[[Any], Any], *, asynchronous: bool) -> Any:
    """A task that meets the outage in its first attempt, by this call."""
    app, met = away.app, []

    @app.task(name="child", queue="children")
    def child() -> None: ...

    def leave() -> None:
        if not met:
            met.append(1)
            away.outage()

    if asynchronous:

        @app.task(name="parent")
        async def parent() -> str:
            leave()
            done = call(child)
            if done is not None:
                await done
            return "done"

    else:

        @app.task(name="parent")
        def parent() -> str:
            leave()
            call(child)
            return "done"

    table(away)
    return parent


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_two_seconds_without_the_store_cost_a_job_nothing(away, call, asynchronous):
    away.outage = away.for_two_seconds
    parent = make_tasks(away, call, asynchronous=asynchronous)

    handle = parent.enqueue()
    with working(away.app, queues=["default"]):
        job = away.ended(handle.id)

    assert (job.state, job.result) == (State.SUCCEEDED, b'"done"'), job.error
    assert (job.attempt, job.failures, job.lapses) == (1, 0, 0)
    assert away.attempts(handle.id) == [(State.SUCCEEDED, None)]
    if "enqueue" in call.__name__ or call is spawn:
        assert away.children() == 1
    if call is transaction:
        assert effects(away) == [1]


@pytest.mark.parametrize("call", [enqueue_async, step_async], ids=lambda call: call.__name__)
def test_two_seconds_cost_what_is_awaited_nothing(away, call):
    test_two_seconds_without_the_store_cost_a_job_nothing(away, call, asynchronous=True)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
@pytest.mark.parametrize("call", MEETS, ids=lambda call: call.__name__)
def test_a_job_whose_store_stays_away_is_put_back_uncounted(away, call, asynchronous):
    away.outage = away.begin
    parent = make_tasks(away, call, asynchronous=asynchronous)
    away.app.patience = Patience(0.5)

    handle = parent.enqueue()
    with working(away.app, queues=["default"]):
        threading.Timer(4.0, away.end).start()
        job = away.ended(handle.id)

    assert (job.state, job.failures, job.lapses) == (State.SUCCEEDED, 0, 0), job.error
    assert away.attempts(handle.id) == [(State.READY, "store"), (State.SUCCEEDED, None)]


def test_what_is_awaited_is_put_back_uncounted_too(away):
    test_a_job_whose_store_stays_away_is_put_back_uncounted(away, enqueue_async, asynchronous=True)


def snapshot_in_vain(away: Away) -> None:
    """The store goes away, for longer than anybody waits for it."""
    away.begin()
    threading.Timer(3.0, away.end).start()
    current_job().snapshot(1)


def test_an_error_that_was_raised_from_the_store_s_is_the_store_s(away):
    app = away.app
    app.patience = Patience(0.2)
    met: list[int] = []

    @app.task(name="wrapped")
    def wrapped() -> None:
        if not met:
            met.append(1)
            try:
                snapshot_in_vain(away)
            except StoreUnreachable as error:
                raise ValueError("no snapshot") from error

    handle = wrapped.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.failures) == (State.SUCCEEDED, 0)
    assert away.attempts(handle.id)[0] == (State.READY, "store")


def test_a_group_of_errors_that_are_all_the_store_s_is_the_store_s(away):
    app = away.app
    app.patience = Patience(0.2)
    met: list[int] = []

    @app.task(name="grouped")
    async def grouped() -> None:
        async def part() -> None:
            snapshot_in_vain(away)

        if not met:
            met.append(1)
            async with asyncio.TaskGroup() as group:
                group.create_task(part())

    handle = grouped.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.failures) == (State.SUCCEEDED, 0), job.error
    assert away.attempts(handle.id)[0] == (State.READY, "store")


def test_an_error_that_hides_the_store_s_counts(away):
    app = away.app
    app.patience = Patience(0.2)

    @app.task(name="hidden")
    def hidden() -> None:
        try:
            snapshot_in_vain(away)
        except StoreUnreachable:
            raise ValueError("something else") from None

    handle = hidden.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.reason, job.failures) == (State.FAILED, "error", 1)


def test_an_error_of_another_store_counts(away, tmp_path):
    """Of one that is not the job's: to that it is a service like any other."""
    app, other = away.app, App("postgresql://nobody@127.0.0.1:1/none")
    other.patience = Patience(0.2)

    @other.task(name="elsewhere")
    def elsewhere() -> None: ...

    @app.task(name="reach")
    def reach() -> None:
        elsewhere.enqueue()

    handle = reach.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.reason, job.failures) == (State.FAILED, "error", 1)


def test_an_error_of_the_user_s_own_connection_counts(away):
    """Also of one to the very same place."""
    app = away.app

    @app.task(name="own")
    def own() -> None:
        if away.url.startswith("sqlite"):
            away.begin()
            try:
                with closing(sqlite3.connect(app.broker.store.path, timeout=0.1)) as connection:
                    connection.execute("create table mine (n integer)")
            finally:
                away.end()
        else:
            psycopg.connect("postgresql://nobody@127.0.0.1:1/none")

    @app.task(name="wrong")
    def wrong() -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into there_is_no_such_table values (1)")

    with working(app):
        jobs = [away.ended(task.enqueue().id) for task in (own, wrong)]

    for job in jobs:
        assert (job.state, job.reason, job.failures) == (State.FAILED, "error", 1), job.error


def test_a_connection_that_dies_in_a_transaction_is_the_store_s_error(away):
    if away.url.startswith("sqlite"):
        return  # there is none that could die
    app = away.app
    table(away)
    met: list[int] = []

    @app.task(name="write")
    def write() -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into effects values (1)")
            if not met:
                met.append(1)
                away.hang_up()
            connection.execute("insert into effects values (2)")

    handle = write.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.failures) == (State.SUCCEEDED, 0)
    assert away.attempts(handle.id) == [(State.READY, "store"), (State.SUCCEEDED, None)]
    assert effects(away) == [1, 2]


def test_a_full_file_in_a_transaction_is_the_store_s_error(tmp_path):
    away = LockedFile(f"sqlite:///{tmp_path}/jobs.db")
    app = away.app
    with closing(sqlite3.connect(app.broker.store.path)) as connection:
        connection.execute("create table texts (text text)")
        connection.commit()
    met: list[int] = []

    @app.task(name="write")
    def write() -> None:
        with current_job().transaction() as connection:
            if not met:
                met.append(1)
                connection.execute("pragma max_page_count = 1")
            connection.execute("insert into texts values (?)", ["x" * 1_000_000])

    handle = write.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.failures) == (State.SUCCEEDED, 0), job.error
    assert away.attempts(handle.id) == [(State.READY, "store"), (State.SUCCEEDED, None)]
    away.close()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
def test_a_timeout_ends_the_wait(away, asynchronous):
    app = away.app

    def meet() -> None:
        away.begin()
        threading.Timer(8.0, away.end).start()
        current_job().snapshot(1)

    if asynchronous:

        @app.task(name="late", timeout=1.0)
        async def late() -> None:
            meet()

    else:

        @app.task(name="late", timeout=1.0)
        def late() -> None:
            meet()

    stuck: list[str] = []
    handle = late.enqueue()
    with working(app, on_stuck=stuck.append):
        job = away.ended(handle.id)

    assert (job.state, job.reason) == (State.FAILED, "timeout"), job.error
    [attempt] = [
        event for event in away.beside.broker.history(job=job.id) if event.kind == "attempt"
    ]
    assert attempt.at - attempt.started_at < 6
    assert stuck == []  # its process, with all the others in it, need not be replaced


def test_a_worker_that_stops_hands_the_job_back(away):
    app = away.app
    began = threading.Event()

    @app.task(name="meet")
    def meet() -> None:
        away.begin()
        began.set()
        current_job().snapshot(1)

    with working(app) as worker:
        handle = meet.enqueue()
        assert began.wait(30)
        worker.stop(now=True)
        threading.Timer(2.0, away.end).start()
        eventually(lambda: away.attempts(handle.id))

    assert away.attempts(handle.id) == [(State.READY, "shutdown")]
    job = away.beside.broker.get(handle.id)
    assert (job.state, job.failures, job.lapses) == (State.READY, 0, 0)


def test_a_job_that_may_run_once_fails_instead_of_being_put_back(away):
    app = away.app
    app.patience = Patience(0.2)
    runs: list[int] = []

    @app.task(name="once", at_most_once=True)
    def once() -> None:
        runs.append(1)
        snapshot_in_vain(away)

    handle = once.enqueue()
    with working(app):
        job = away.ended(handle.id)

    assert (job.state, job.failures) == (State.FAILED, 1)
    assert runs == [1]


def test_many_jobs_wait_for_one_outage_together(away):
    """Each holds up the event loop: ten that wait in turn would hold it up ten times as long."""
    app = away.app
    app.patience = Patience(2.0)
    met: list[int] = []
    waits: list[float] = []
    all_there = asyncio.Event()

    @app.task(name="meet")
    async def meet() -> None:
        met.append(1)
        if len(met) == 10:
            away.begin()
            threading.Timer(8.0, away.end).start()
            all_there.set()
        await all_there.wait()
        began = time.monotonic()
        try:
            current_job().snapshot(1)
        finally:
            waits.append(time.monotonic() - began)

    with working(app):
        handles = app.enqueue([meet.job() for _ in range(10)])
        jobs = [away.ended(handle.id) for handle in handles]

    assert {(job.state, job.failures) for job in jobs} == {(State.SUCCEEDED, 0)}
    assert max(waits) > 1.5
    assert sum(wait > 1.5 for wait in waits[:10]) < 3, waits


def test_a_call_outside_of_a_job_does_not_wait(away):
    app = away.app

    @app.task(name="child")
    def child() -> None: ...

    child.enqueue()
    away.begin()

    with pytest.raises((StoreUnreachable, UnknownOutcome)):
        child.enqueue()
