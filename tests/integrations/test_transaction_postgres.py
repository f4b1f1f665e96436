"""transaction() on PostgreSQL: psycopg as its users know it, and SQLAlchemy over it. V35."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from sqlalchemy import StaticPool, create_engine, text
from sqlalchemy.orm import Session

from penstock import App, JobFailed, State, current_job


@pytest.fixture
def url(postgres_url: str) -> str:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create table effect (id uuid primary key, data jsonb)")
    return postgres_url


@pytest.fixture
def app() -> App:
    return App("memory:")


def effects(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return [data for (data,) in connection.execute("select data from effect order by 1")]


INSERT = "insert into effect values (gen_random_uuid(), %s)"


def test_values_go_and_come_as_they_do_in_psycopg(app, url):
    @app.task
    def book() -> None:
        with current_job().transaction() as db:
            id = uuid.uuid4()
            db.execute("insert into effect values (%s, %s)", (id, Jsonb({"n": 1})))
            assert db.execute("select id, data from effect").fetchone() == (id, {"n": 1})
            db.row_factory = dict_row
            assert db.execute("select data from effect").fetchone() == {"data": {"n": 1}}

    with app.testing(url=url) as t:
        handle = book.enqueue()
        t.drain()
        assert handle.state() is State.SUCCEEDED, handle.why()

    assert effects(url) == [{"n": 1}]


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_commit_inside_waits_for_the_end_of_the_job(app, url, ends_well):
    @app.task
    def book() -> None:
        with current_job().transaction() as db, db:  # psycopg's own block: commits, and closes
            db.execute(INSERT, (Jsonb(1),))
            db.commit()
            db.execute(INSERT, (Jsonb(2),))
            db.rollback()
            with db.transaction():
                db.execute(INSERT, (Jsonb(3),))
        assert effects(url) == []
        if not ends_well:
            raise ValueError

    with app.testing(url=url) as t:
        book.enqueue()
        t.drain()

    assert effects(url) == ([1, 3] if ends_well else [])


def test_sqlalchemy_can_be_bound_to_it(app, url):
    @app.task
    def follow() -> None: ...

    @app.task
    def book() -> None:
        with current_job().transaction() as db:
            engine = create_engine(
                "postgresql+psycopg://", creator=lambda: db, poolclass=StaticPool
            )
            statement = text("insert into effect values (gen_random_uuid(), cast(:data as jsonb))")
            with Session(engine) as session:
                session.execute(statement, {"data": "1"})
                follow.options(connection=session).enqueue()
                session.commit()
                session.execute(statement, {"data": "2"})
                session.rollback()
            with engine.begin() as connection:
                connection.execute(statement, {"data": "3"})
            assert effects(url) == []

    with app.testing(url=url) as t:
        handle = book.enqueue()
        with t.crash_at("settle", book):
            t.drain()
        assert handle.state() is State.SUCCEEDED
        assert len(t.jobs(follow)) == 1

    assert effects(url) == [1, 3]


def test_an_error_of_sql_that_is_swallowed_fails_the_job_and_leaves_nothing(app, url):
    @app.task
    def book() -> None:
        with current_job().transaction() as db:
            db.execute(INSERT, (Jsonb(1),))
            with pytest.raises(psycopg.Error):
                db.execute("select 1 / 0")

    with app.testing(url=url) as t:
        handle = book.enqueue()
        t.drain()
        with pytest.raises(JobFailed, match="transaction is aborted"):
            handle.result()

    assert effects(url) == []


def test_a_session_that_is_lost_leaves_nothing_and_the_job_runs_again(app, url):
    attempts: list[int] = []

    @app.task
    def book() -> None:
        attempts.append(current_job().attempt)
        with current_job().transaction() as db:
            db.execute(INSERT, (Jsonb(1),))
            if len(attempts) == 1:
                _cut(url, db.info.backend_pid)

    with app.testing(url=url) as t:
        handle = book.enqueue()
        t.drain()
        assert handle.state() is State.SUCCEEDED

    assert (attempts, effects(url)) == ([1, 2], [1])


def _cut(url: str, pid: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", (pid,))


@pytest.fixture(autouse=True)
def closed(app: App) -> Iterator[None]:
    yield
    app.close()
