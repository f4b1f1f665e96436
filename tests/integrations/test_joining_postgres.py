"""Enqueue in the caller's own transaction on PostgreSQL, whoever made the connection. V4, C14."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import App, Refused
from penstock.broker.filter import Filter
from penstock.job import Job
from penstock.task.task import PlainTask
from tests.integrations.callers import (
    CALLERS,
    AsyncOrmSessionAsyncpg,
    OrmSession,
    Plain,
    Waiting,
    sqlalchemy_url,
)


@pytest.fixture
def url(postgres_store_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        connection.execute("drop table if exists orders")
        connection.execute("create table orders (n integer primary key)")
    yield postgres_store_url
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        connection.execute("drop table if exists orders")


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    yield app
    app.close()


@pytest.fixture
def send(app: App) -> PlainTask[[int], None]:
    @app.task(name="send")
    def send(n: int) -> None: ...

    return send


@pytest.fixture(params=CALLERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Plain]:
    return request.param


def ready(app: App) -> int:
    return sum(count.ready for count in app.broker.count())


def orders(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [n for (n,) in connection.execute("select n from orders order by n")]


def with_caller(kind: type[Plain], url: str, story: Callable[[Any], Awaitable[None]]) -> None:
    """Run a story on a connection of this kind, on an event loop of its own."""

    async def told() -> None:
        caller = kind()
        await caller.open(url)
        try:
            await story(caller)
        finally:
            await caller.close()
            if engine := getattr(caller, "engine", None):
                disposed = engine.dispose()
                if disposed is not None:
                    await disposed

    asyncio.run(told())


def test_the_job_is_there_if_and_only_if_the_caller_commits(url, app, send, kind):
    """V4: rollback, none fires; commit, all fire."""

    async def story(caller):
        await caller.write(1)
        await caller.enqueue(send, 1)
        await caller.enqueue(send, 2, tags={"tenant": "a"})
        assert ready(app) == 0
        await caller.rollback()
        assert (orders(url), ready(app)) == ([], 0)

        await caller.write(1)
        handles = [await caller.enqueue(send, n) for n in range(3)]
        handles.append(await caller.enqueue(send, 4, key="ada", delay=60))
        assert ready(app) == 0
        await caller.commit()
        assert (orders(url), ready(app)) == ([1], 3)
        assert all(app.broker.get(handle.id) is not None for handle in handles)

    with_caller(kind, url, story)


def test_a_savepoint_of_the_callers_takes_its_jobs_along(url, app, send, kind):
    async def story(caller):
        await caller.enqueue(send, 1)
        await caller.execute("savepoint before")
        await caller.enqueue(send, 2)
        await caller.execute("rollback to savepoint before")
        await caller.enqueue(send, 3)
        await caller.commit()

    with_caller(kind, url, story)

    jobs = [job.body for job in found(app)]
    assert jobs == [b'{"args":{"n":1}}', b'{"args":{"n":3}}']


def found(app: App) -> list[Job[Any]]:
    return sorted(app.broker.find(Filter(), limit=1000).jobs, key=lambda job: job.id)


def test_what_is_refused_leaves_the_callers_transaction_as_it_was(url, app, send, kind):
    old = Job(task="send", id="01000000-0000-7000-8000-000000000000", app=app)

    async def story(caller):
        await caller.write(1)
        with pytest.raises(Refused, match="n"):
            await caller.enqueue(send, "not a number")
        with pytest.raises(Refused, match="days ago"):
            await caller.enqueue_job(app, old)
        await caller.enqueue(send, 1)
        await caller.commit()

    with_caller(kind, url, story)

    assert (orders(url), ready(app)) == ([1], 1)


def test_an_id_that_the_store_has_forgotten_is_refused_before_anything_is_written(url, app, send):
    job = send.job(1)
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into penstock.meta values ('pruned_before', %s)"
            " on conflict (name) do update set value = excluded.value",
            (str(app.clock.now() + 10),),
        )
        connection.execute("insert into orders values (1)")

        with pytest.raises(Refused, match="older than what this store remembers"):
            app.enqueue([job], connection=connection)

        assert connection.execute("select n from orders").fetchall() == [(1,)]
        connection.rollback()


def test_another_database_is_refused_and_the_callers_transaction_goes_on(
    app, send, kind, postgres_url
):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table orders (n integer)")

    async def story(caller):
        await caller.write(1)
        with pytest.raises(Refused, match=r"another database than the app's.*Nothing was written"):
            await caller.enqueue(send, 1)
        await caller.commit()

    with_caller(kind, postgres_url, story)

    assert orders(postgres_url) == [1]


def test_another_store_in_another_database_is_refused_too(app, send, kind, postgres_url):
    other = App(postgres_url)
    _ = other.broker

    async def story(caller):
        with pytest.raises(Refused, match="another database"):
            await caller.enqueue(send, 1)
        await caller.execute("create table orders (n integer)")
        await caller.commit()

    with_caller(kind, postgres_url, story)

    assert other.broker.count() == []
    other.close()


def test_without_a_transaction_a_job_is_committed_by_its_own_statement(url, app, send):
    with psycopg.connect(url, autocommit=True) as connection:
        send.options(connection=connection).enqueue(1)

        assert ready(app) == 1

    async def awaited() -> None:
        connection = await asyncpg.connect(url)
        await send.options(connection=connection).enqueue_async(2)
        await connection.close()

    asyncio.run(awaited())
    assert ready(app) == 2


def test_blocks_of_psycopg_nest(url, app, send):
    with psycopg.connect(url) as connection:
        with connection.transaction():
            send.options(connection=connection).enqueue(1)
            with connection.transaction(force_rollback=True):
                send.options(connection=connection).enqueue(2)
        connection.rollback()

    assert ready(app) == 1


def test_a_session_within_a_session_is_respected(url, app, send):
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with Session(engine) as session:
        send.options(connection=session).enqueue(1)
        with session.begin_nested() as nested:
            send.options(connection=session).enqueue(2)
            nested.rollback()
        with session.begin_nested():
            send.options(connection=session).enqueue(3)
        assert ready(app) == 0
        session.commit()
    engine.dispose()

    assert ready(app) == 2


def test_a_pool_of_asyncpg_lends_connections_that_can_be_joined(url, app, send):
    async def story() -> None:
        async with (
            asyncpg.create_pool(url, min_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(),
        ):
            await send.options(connection=connection).enqueue_async(1)
            await send.options(connection=connection).enqueue_async(2)

    asyncio.run(story())

    assert ready(app) == 2


def test_an_async_session_is_written_to_on_the_callers_loop_alone(url, app, send):
    send.enqueue(0)  # the lane is known: nothing is left that waits

    async def story(caller):
        before = set(threading.enumerate())
        await caller.enqueue(send, 1)
        assert set(threading.enumerate()) <= before
        await caller.commit()

    with_caller(AsyncOrmSessionAsyncpg, url, story)

    assert ready(app) == 2


def test_many_at_once_join_all_or_none(url, app, send):
    with psycopg.connect(url) as connection:
        app.enqueue([send.job(n) for n in range(500)], connection=connection)
        send.options(connection=connection).enqueue_many([(n,) for n in range(1000)])
        connection.rollback()
        assert ready(app) == 0

        app.enqueue([send.job(n) for n in range(500)], connection=connection)
        send.options(connection=connection, tags={"a": "b"}).enqueue_many([(1,), (2,)])
        connection.commit()

    assert ready(app) == 502


def test_a_batch_goes_on_where_the_callers_last_commit_left_it(url, app, send):
    rows = [(n,) for n in range(5)]
    with psycopg.connect(url) as connection:
        prepared = send.options(connection=connection)
        assert prepared.enqueue_many(rows[:2], id="import").count == 2
        connection.commit()
        assert prepared.enqueue_many(rows[:4], id="import").count == 4
        connection.rollback()

        assert prepared.enqueue_many(rows, id="import").count == 5
        connection.commit()

    assert ready(app) == 5


@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["packed", "rows"])
def test_what_was_sent_before_is_left_as_it_is_and_the_rest_is_stored(url, app, send, tags):
    """The same value again, whatever the cut."""
    make = send.options(tags=tags).job
    jobs = [make(n) for n in range(200)]
    app.enqueue(jobs[50:60])
    with psycopg.connect(url) as connection:
        app.enqueue(jobs[:100], connection=connection)
        app.enqueue(jobs, connection=connection)
        app.enqueue(jobs[199:], connection=connection)
        connection.commit()

    assert ready(app) == 200
    assert len({job.id for job in found(app)}) == 200


@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["packed", "rows"])
def test_two_senders_of_one_job_at_the_same_moment_store_it_once(url, app, send, tags):
    job = send.options(tags=tags).job(1)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url) as connection:
        app.enqueue([job], connection=connection)
        with psycopg.connect(url) as other:
            other.execute("insert into orders values (1)")
            second = pool.submit(app.enqueue, [job], connection=other)
            connection.commit()
            second.result(timeout=60)
            other.commit()

    assert (ready(app), orders(url)) == (1, [1])


def test_the_holder_of_a_unique_key_is_named(url, app, send):
    standing = send.options(unique="one").enqueue(1)
    with psycopg.connect(url) as connection:
        handle = send.options(unique="one", connection=connection).enqueue(2)
        connection.commit()

    assert (handle.id, handle.stored) == (standing.id, False)


def test_a_plain_connection_is_not_awaited_and_an_async_one_is(url, send):
    async def awaited(connection: Any) -> None:
        await send.options(connection=connection).enqueue_async(1)

    with psycopg.connect(url) as connection, pytest.raises(Refused, match=r"use enqueue\("):
        asyncio.run(awaited(connection))

    async def plain() -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        try:
            with pytest.raises(Refused, match=r"await .*enqueue_async\("):
                send.options(connection=connection).enqueue(1)
        finally:
            await connection.close()

    asyncio.run(plain())
    with pytest.raises(Refused, match="AsyncSession is asynchronous"):
        send.options(connection=AsyncSession()).enqueue(1)


def test_an_engine_is_no_connection(url, send):
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    loops = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    with pytest.raises(Refused, match=r"Engine is no connection.*engine\.begin\(\)"):
        send.options(connection=engine).enqueue(1)
    with pytest.raises(Refused, match="AsyncEngine is no connection"):
        asyncio.run(send.options(connection=loops).enqueue_async(1))


def test_a_connection_of_sqlite_is_refused_in_one_sentence(url, send):
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(Refused, match="must be a connection to that database: psycopg's"):
            send.options(connection=connection).enqueue(1)
        with pytest.raises(Refused, match="connection is a object"):
            send.options(connection=object()).enqueue(1)
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(Refused, match="connection is a sqlite"):
        send.options(connection=connection).enqueue(1)
    engine.dispose()


def test_a_store_on_sqlite_refuses_a_connection_of_postgresql(url, tmp_path):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task
    def send(n: int) -> None: ...

    async def awaited() -> None:
        engine = create_async_engine(sqlalchemy_url(url, "asyncpg"))
        try:
            async with AsyncSession(engine) as session:
                await send.options(connection=session).enqueue_async(1)
        finally:
            await engine.dispose()

    with psycopg.connect(url) as connection, pytest.raises(Refused, match="is the SQLite file"):
        send.options(connection=connection).enqueue(1)
    with pytest.raises(Refused, match="plain connection"):
        asyncio.run(awaited())
    app.close()


def test_a_login_without_the_right_is_told_so_and_its_transaction_goes_on(url, app, send):
    with psycopg.connect(url) as connection:
        connection.execute("create role stranger")
        connection.execute("grant insert, select on orders to stranger")
        connection.execute("set local role stranger")
        connection.execute("insert into orders values (1)")

        with pytest.raises(Refused, match="may not use the store"):
            send.options(connection=connection).enqueue(1)

        assert connection.execute("select n from orders").fetchall() == [(1,)]
        connection.rollback()


@pytest.mark.parametrize("kind", [Plain, OrmSession, Waiting, AsyncOrmSessionAsyncpg])
def test_a_worker_that_waits_hears_of_the_commit(url, app, send, kind):
    """C14: a raw transaction tells with its commit, a session after it."""
    send.enqueue(0)
    heard = threading.Event()
    broker = app.broker
    broker.wait(None, 0.05)  # it listens from now on, and what was said before is past

    def wait() -> None:
        if broker.wait(None, 20):
            heard.set()

    thread = threading.Thread(target=wait)

    async def story(caller):
        await caller.enqueue(send, 1)
        thread.start()
        assert not heard.wait(0.1)
        await caller.commit()
        assert heard.wait(10)

    with_caller(kind, url, story)
    thread.join()


def test_notifications_within_transactions_can_be_turned_off(url, send):
    quiet = App(f"{url}?notify_in_transaction=false")

    @quiet.task(name="quiet")
    def quiet_task(n: int) -> None: ...

    with (
        psycopg.connect(url, autocommit=True) as listener,
        psycopg.connect(url) as connection,
    ):
        _ = quiet.broker
        quiet_task.options(connection=connection).enqueue(1)
        connection.commit()
        listener.execute("listen penstock")
        quiet_task.options(connection=connection).enqueue(1)
        connection.commit()
        send.options(connection=connection).enqueue(1)
        connection.commit()
        [heard] = list(listener.notifies(timeout=10, stop_after=1))

    lanes = {lane.task: number for number, lane in send.app.broker.store.lanes.items()}
    assert heard.payload == str(lanes["send"])
    quiet.close()
    with pytest.raises(Refused, match="notify_in_transaction=maybe: true or false"):
        _ = App(f"{url}?notify_in_transaction=maybe").broker


def test_a_session_that_is_told_nothing_after_a_rollback_commits_later(url, app, send):
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with Session(engine) as session:
        for n in range(50):
            send.options(connection=session).enqueue(n)
            session.rollback()
        session.execute(text("select 1"))
        assert len(session.info["penstock"]) == 1
        session.commit()
        assert session.info["penstock"] == {}
    engine.dispose()

    assert ready(app) == 0
