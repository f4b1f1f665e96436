"""Enqueue in the caller's own transaction: there if it commits, and only then."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from penstock import App, Refused
from penstock.errors import StoreUnreachable
from penstock.task.task import PlainTask

URL = "sqlite:///{}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def app(path: Path) -> Iterator[App]:
    app = App(URL.format(path))
    yield app
    app.close()


@pytest.fixture
def send(app: App) -> PlainTask[[int], None]:
    @app.task
    def send(n: int) -> None: ...

    send.enqueue(0)  # the file and its tables are there
    return send


def ready(app: App) -> int:
    [count] = app.broker.count()
    return count.ready


def test_a_sqlite3_connection_takes_the_job_along(
    app: App, send: PlainTask[[int], None], path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("begin")
        send.options(connection=connection).enqueue(1)
        connection.rollback()
        assert ready(app) == 1

        connection.execute("begin")
        handle = send.options(connection=connection).enqueue(2)
        connection.commit()

    assert ready(app) == 2
    assert app.broker.get(handle.id) is not None


def test_sqlalchemy_connections_and_sessions_are_unwrapped(
    app: App, send: PlainTask[[int], None], path: Path
) -> None:
    engine = create_engine(URL.format(path))
    try:
        with engine.begin() as connection:
            connection.execute(text("create table mine (n integer)"))
            send.options(connection=connection).enqueue(1)
        with engine.connect() as connection:
            connection.execute(text("insert into mine values (1)"))
            send.options(connection=connection).enqueue(2)
            connection.rollback()
        with Session(engine) as session:
            session.execute(text("insert into mine values (2)"))
            send.options(connection=session).enqueue(3)
            session.rollback()
            send.options(connection=session).enqueue(4)
            session.commit()
    finally:
        engine.dispose()

    assert ready(app) == 3


def test_many_rows_and_many_jobs_join_too(
    app: App, send: PlainTask[[int], None], path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("begin")
        send.options(connection=connection).enqueue_many([(1,), (2,)])
        app.enqueue([send.job(3), send.job(4)], connection=connection)
        assert ready(app) == 1
        connection.commit()

    assert ready(app) == 5


def test_another_database_is_refused(send: PlainTask[[int], None], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("begin")
        with pytest.raises(Refused):
            send.options(connection=connection).enqueue(1)


def test_a_connection_of_something_else_is_refused(send: PlainTask[[int], None]) -> None:
    async def awaited() -> None:
        await send.options(connection=object()).enqueue_async(1)

    with pytest.raises(Refused, match="must be a sqlite3 connection"):
        send.options(connection=object()).enqueue(1)
    with pytest.raises(Refused, match=r"use enqueue\(\.\.\.\) with one"):
        asyncio.run(awaited())


def test_tables_that_are_not_there_yet_cannot_be_made_inside_the_callers_transaction(tmp_path):
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id integer)")
        connection.commit()
        connection.execute("insert into orders values (1)")
        app = App(f"sqlite:///{path}")
        task = app.task(name="count")(count_orders)

        with pytest.raises(StoreUnreachable, match="penstock migrate"):
            task.options(connection=connection).enqueue()


def count_orders() -> None: ...
