"""Connections of callers, one class per driver: each begins, writes, enqueues and ends its own way.

All of them are awaited, the plain ones too, so that one test can be about any of them.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import psycopg2
from psycopg.rows import dict_row
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock import App
from penstock.enqueue.handle import Handle
from penstock.job import Job
from penstock.task.task import Task


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


class Plain:
    """A connection that is written to at once; psycopg's, with rows of another kind."""

    connection: Any

    async def open(self, url: str) -> None:
        self.connection = psycopg.connect(url, row_factory=dict_row)

    async def write(self, n: int) -> None:
        await self.execute(f"insert into orders values ({n})")

    async def execute(self, statement: str) -> None:
        self.connection.cursor().execute(statement)

    async def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        return task.options(connection=self.connection, **options).enqueue(*args)

    async def enqueue_job(self, app: App, job: Job[Any]) -> None:
        app.enqueue([job], connection=self.connection)

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


class PsycopgBlock(Plain):
    """Autocommit, and a transaction written out."""

    async def open(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        await self._begin()

    async def _begin(self) -> None:
        self.connection.execute("begin")

    async def commit(self) -> None:
        self.connection.execute("commit")
        await self._begin()

    async def rollback(self) -> None:
        self.connection.execute("rollback")
        await self._begin()


class PsycopgPipeline(Plain):
    async def open(self, url: str) -> None:
        await super().open(url)
        self._pipeline = self.connection.pipeline()
        self._pipeline.__enter__()

    async def close(self) -> None:
        self._pipeline.__exit__(None, None, None)
        await super().close()


class Psycopg2(Plain):
    async def open(self, url: str) -> None:
        self.connection = psycopg2.connect(url)


class Connection(Plain):
    """SQLAlchemy's."""

    driver = "psycopg"

    async def open(self, url: str) -> None:
        self.engine = create_engine(sqlalchemy_url(url, self.driver), poolclass=NullPool)
        self.connection = self.engine.connect()

    async def execute(self, statement: str) -> None:
        self.connection.execute(text(statement))


class ConnectionPsycopg2(Connection):
    driver = "psycopg2"


class OrmSession(Connection):
    """SQLAlchemy's Session."""

    async def open(self, url: str) -> None:
        self.engine = create_engine(sqlalchemy_url(url, self.driver), poolclass=NullPool)
        self.connection = Session(self.engine)


class OrmSessionPsycopg2(OrmSession):
    driver = "psycopg2"


class ScopedSession(Connection):
    async def open(self, url: str) -> None:
        self.engine = create_engine(sqlalchemy_url(url, self.driver), poolclass=NullPool)
        self.connection = scoped_session(sessionmaker(self.engine))

    async def close(self) -> None:
        self.connection.remove()


class Waiting(Plain):
    """A connection that is awaited; psycopg's."""

    async def open(self, url: str) -> None:
        self.connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)

    async def execute(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        return await task.options(connection=self.connection, **options).enqueue_async(*args)

    async def enqueue_job(self, app: App, job: Job[Any]) -> None:
        await app.enqueue_async([job], connection=self.connection)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class Asyncpg(Waiting):
    async def open(self, url: str) -> None:
        self.connection = await asyncpg.connect(url)
        await self._begin()

    async def _begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()
        await self._begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self._begin()


class AsyncOrmSession(Waiting):
    """SQLAlchemy's AsyncSession."""

    driver = "psycopg"

    async def open(self, url: str) -> None:
        self.engine = create_async_engine(sqlalchemy_url(url, self.driver), poolclass=NullPool)
        self.connection = AsyncSession(self.engine)

    async def execute(self, statement: str) -> None:
        await self.connection.execute(text(statement))


class AsyncOrmSessionAsyncpg(AsyncOrmSession):
    driver = "asyncpg"


class AsyncConnection(AsyncOrmSession):
    async def open(self, url: str) -> None:
        self.engine = create_async_engine(sqlalchemy_url(url, self.driver), poolclass=NullPool)
        self.connection = await self.engine.connect()


class AsyncConnectionAsyncpg(AsyncConnection):
    driver = "asyncpg"


class RunSync(AsyncOrmSession):
    """Inside of `run_sync` there is the plain session over an asynchronous driver."""

    driver = "asyncpg"

    async def enqueue(self, task: Task[..., Any], *args: Any, **options: Any) -> Handle[Any]:
        return await self.connection.run_sync(
            lambda session: task.options(connection=session, **options).enqueue(*args)
        )

    async def enqueue_job(self, app: App, job: Job[Any]) -> None:
        await self.connection.run_sync(lambda session: app.enqueue([job], connection=session))


CALLERS = [
    Plain,
    PsycopgBlock,
    PsycopgPipeline,
    Psycopg2,
    Connection,
    ConnectionPsycopg2,
    OrmSession,
    OrmSessionPsycopg2,
    ScopedSession,
    Waiting,
    Asyncpg,
    AsyncOrmSession,
    AsyncOrmSessionAsyncpg,
    AsyncConnection,
    AsyncConnectionAsyncpg,
    RunSync,
]
