"""The caller's connection, of any supported driver: what `options(connection=...)` takes.

The store yields statements and is sent their results (a `Conversation`); here they are executed
with the API of each driver. Nothing else is done to the connection: its transaction, settings and
event loop are the caller's. Drivers are recognised by the package of the connection's class, so
that none of them need be installed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, cast

from penstock.broker.protocol import Broker
from penstock.broker.values import Enqueued
from penstock.errors import Refused
from penstock.flows.flow import Flow
from penstock.job import Job, Parcel

_SQLALCHEMY, _DJANGO = "sqlalchemy", "django"


class JoinStatement(NamedTuple):
    """A statement with one column and one row, and the one value it takes, at %s."""

    statement: str
    value: str | None = None


Conversation = Generator[JoinStatement, Any, Enqueued]


class Join(Protocol):
    """Jobs on their way into a caller's transaction: what a store that can be joined makes."""

    prepared: bool

    def prepare(self) -> None:
        """Do what has to be done on the store's own connections first, and waits for it."""
        ...

    def asks(self, caller: Caller) -> Conversation:
        """What is asked on the caller's connection."""
        ...


class Joinable(Protocol):
    """A store that can be written to on an asynchronous connection of the caller's."""

    def join(self, jobs: Sequence[Job[Any] | Parcel], *, flow: Flow | None = None) -> Join: ...


class Caller:
    """A connection of the caller's; what follows its commit is hooked to it where that is possible.

    `driver` is the driver's own object, which lives as long as the session with the database.
    """

    dialect = "postgresql"
    hooked = False

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def ask(self, ask: JoinStatement) -> Any:
        """The answer, on a connection that is not asynchronous."""
        del ask
        raise Refused(
            f"options(connection=...): {type(self.driver).__name__} is asynchronous; write "
            "`await task.options(connection=...).enqueue_async(...)`"
        )

    async def ask_async(self, ask: JoinStatement) -> Any:
        """The answer, on an asynchronous connection."""
        del ask
        raise Refused(
            f"options(connection=...).enqueue_async(...): {type(self.driver).__name__} is not "
            "asynchronous; use enqueue(...), which writes on it at once"
        )

    def after_commit(self, key: object, callback: Callable[[], None]) -> None:
        """Call this when the caller has committed; the same key twice is once."""


def hold(conversation: Conversation, caller: Caller) -> Enqueued:
    """Execute the statements of a conversation on the caller's connection."""
    try:
        ask = next(conversation)
        while True:
            ask = conversation.send(caller.ask(ask))
    except StopIteration as end:
        return end.value


async def join_async(
    broker: Broker,
    connection: Any,
    jobs: Sequence[Job[Any] | Parcel],
    flow: Flow | None = None,
) -> Enqueued:
    """Store these jobs in the transaction of an asynchronous connection, on the running loop."""
    caller = await caller_async(connection)
    if not broker.traits.can("joins later"):
        raise Refused(
            "options(connection=...).enqueue_async(...): this store can only be joined on a plain "
            "connection; use enqueue(...) with one"
        )
    join = cast("Joinable", broker).join(jobs, flow=flow)
    if not join.prepared:
        import asyncio

        await asyncio.to_thread(join.prepare)
    conversation = join.asks(caller)
    try:
        ask = next(conversation)
        while True:
            ask = conversation.send(await caller.ask_async(ask))
    except StopIteration as end:
        return end.value


def caller_of(connection: Any) -> Caller:
    """The caller's connection by its kind; anything that is no connection is refused."""
    packages = _packages_of(connection)
    if _SQLALCHEMY in packages:
        connection = _session_of_this_thread(connection)
        _refuse_engine(connection)
        if _sync_part(connection) is not None:
            return Caller(connection)
        session = connection if callable(getattr(connection, "connection", None)) else None
        return _SqlAlchemy(connection if session is None else session.connection(), session)
    if _DJANGO in packages and hasattr(connection, "ensure_connection"):
        connection.ensure_connection()
        return _Django(connection)
    for kind, plain in (("psycopg", _Psycopg), ("psycopg2", _Psycopg2)):
        if kind in packages and not _is_async(connection):
            return plain(connection)
    caller = Caller(connection)
    caller.dialect = (
        "postgresql" if packages & {"psycopg", "asyncpg"} else type(connection).__name__
    )
    return caller


async def caller_async(connection: Any) -> Caller:
    """As `caller_of`, of an asynchronous connection."""
    packages = _packages_of(connection)
    if _SQLALCHEMY in packages:
        connection = _session_of_this_thread(connection)
        _refuse_engine(connection)
        if _sync_part(connection) is not None:
            session = getattr(connection, "sync_session", None)
            if session is not None:
                connection = await connection.connection()
            return _SqlAlchemyAsync(connection, session)
    if "psycopg" in packages and _is_async(connection):
        return _PsycopgAsync(connection)
    if "asyncpg" in packages:
        return _Asyncpg(connection)
    return caller_of(connection)


def driver_connection(connection: Any) -> Any:
    """A driver's connection as it is; of SQLAlchemy's and Django's, the one below."""
    return caller_of(connection).driver


class _Psycopg(Caller):
    def ask(self, ask: JoinStatement) -> Any:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # Made by hand: the caller may have set other rows, or another kind of cursor.
        with Cursor(self.driver, row_factory=tuple_row) as cursor:
            return _first_column(cursor.execute(*_with_percent(ask)).fetchone())


class _PsycopgAsync(Caller):
    async def ask_async(self, ask: JoinStatement) -> Any:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self.driver, row_factory=tuple_row) as cursor:
            await cursor.execute(*_with_percent(ask))
            return _first_column(await cursor.fetchone())


class _Psycopg2(Caller):
    def ask(self, ask: JoinStatement) -> Any:
        plain: Any = sys.modules["psycopg2.extensions"]
        with self.driver.cursor(cursor_factory=plain.cursor) as cursor:
            cursor.execute(*_with_percent(ask))
            return _first_column(cursor.fetchone())


class _Asyncpg(Caller):
    async def ask_async(self, ask: JoinStatement) -> Any:
        values = () if ask.value is None else (ask.value,)
        return await self.driver.fetchval(ask.statement.replace("%s", "$1"), *values)


class _SqlAlchemy(Caller):
    def __init__(self, connection: Any, session: Any) -> None:
        plain = _sync_part(connection) or connection
        super().__init__(plain.connection.driver_connection)
        self.dialect = connection.dialect.name
        self.hooked = session is not None
        self._connection = connection
        self._session = session

    def ask(self, ask: JoinStatement) -> Any:
        return self._connection.execute(*_with_names(ask)).scalar_one()

    def after_commit(self, key: object, callback: Callable[[], None]) -> None:
        callbacks: dict[object, Callable[[], None]] | None = self._session.info.get("penstock")
        if callbacks is None:
            from sqlalchemy import event

            callbacks = self._session.info["penstock"] = {}
            event.listen(self._session, "after_commit", _committed)
        callbacks[key] = callback


class _SqlAlchemyAsync(_SqlAlchemy):
    async def ask_async(self, ask: JoinStatement) -> Any:
        return (await self._connection.execute(*_with_names(ask))).scalar_one()


class _Django(Caller):
    def __init__(self, wrapper: Any) -> None:
        super().__init__(wrapper.connection)
        self.dialect = wrapper.vendor
        # Of transactions that the caller begins and ends by hand Django says nothing.
        self.hooked = bool(wrapper.in_atomic_block or wrapper.get_autocommit())
        self._wrapper = wrapper

    def ask(self, ask: JoinStatement) -> Any:
        with self._wrapper.cursor() as cursor:
            cursor.execute(*_with_percent(ask))
            return _first_column(cursor.fetchone())

    def after_commit(self, key: object, callback: Callable[[], None]) -> None:
        del key
        self._wrapper.on_commit(callback, robust=True)


def _committed(session: Any) -> None:
    if not session.in_nested_transaction():  # the end of a savepoint is no commit yet
        callbacks = session.info["penstock"]
        for key in list(callbacks):
            callbacks.pop(key)()


def _packages_of(connection: Any) -> set[str]:
    """The packages that a connection's classes come from."""
    return {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}


def _session_of_this_thread(connection: Any) -> Any:
    """Of a scoped session (one per thread or task), the current one."""
    return connection() if hasattr(connection, "registry") else connection


def _refuse_engine(connection: Any) -> None:
    if not hasattr(connection, "commit"):
        raise Refused(
            f"options(connection=...): {type(connection).__name__} is no connection; hand over "
            "the one whose transaction is meant, as `with engine.begin() as connection:` gives it"
        )


def _sync_part(connection: Any) -> Any:
    """What SQLAlchemy's asynchronous classes are wrapped around; None for the plain ones."""
    return getattr(connection, "sync_session", getattr(connection, "sync_connection", None))


def _is_async(connection: Any) -> bool:
    return inspect.iscoroutinefunction(connection.commit)


def _first_column(row: Any) -> Any:
    return row[0]


def _with_percent(ask: JoinStatement) -> tuple[Any, ...]:
    return (ask.statement,) if ask.value is None else (ask.statement, (ask.value,))


def _with_names(ask: JoinStatement) -> tuple[Any, ...]:
    from sqlalchemy import text

    statement = text(ask.statement.replace("%s", ":value"))
    return (statement,) if ask.value is None else (statement, {"value": ask.value})
