"""The database behind the broker: connections, transactions, time, and errors in our words.

Connections are lent: whoever needs one takes an idle one or opens another, so a thread that waits
for the server keeps no other from it. Nothing is set per session: behind a pooler the session
belongs to everybody. A connection that was cut short is never lent again.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from penstock.app.clock import AnyClock, ticks
from penstock.app.settings import mask
from penstock.broker.read_budget import LONGEST_QUESTION, Spent, current_share
from penstock.broker.traits import ONE_PLACE, Traits
from penstock.broker.values import RETENTION_SECONDS
from penstock.brokers.postgres import migrating
from penstock.brokers.postgres.binary_arrays import bigs
from penstock.brokers.postgres.claimable_lanes import PostgresClaimableLanes
from penstock.brokers.postgres.clock import StoreClock
from penstock.brokers.postgres.connection import CALL_SECONDS, Connection, connect
from penstock.brokers.postgres.errors import in_our_words
from penstock.brokers.postgres.listening import Listener, await_heard
from penstock.brokers.postgres.statements import sql
from penstock.errors import PenstockError, Refused, StoreUnreachable
from penstock.job import Lane

CONNECT_SECONDS = 5
_AT_ONCE = 5000
IDLE_CONNECTIONS = 8  # more are closed when they come back
RING_SECONDS = 0.005  # at most one notification in this time
CHANNEL = "penstock"
STARTING_SECONDS = 0.005
_READ_ONLY = (errors.ReadOnlySqlTransaction,)
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


class PostgresDb:
    """One transaction on a connection of ours: rows as dicts, ids as bytes."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Any = ()) -> psycopg.Cursor[dict[str, Any]]:
        cursor = self.connection.cursor(binary=True, row_factory=dict_row)
        return cursor.execute(statement.encode(), parameters)

    def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        sets = list(parameters)
        # A page at a time: all of them are one call, and a call may take only so long.
        for start in range(0, len(sets), _AT_ONCE):
            page = sets[start : start + _AT_ONCE]
            self.connection.cursor().executemany(statement.encode(), page)

    def each(self, statement: str, parameters: Iterable[Any]) -> Sequence[Mapping[str, Any] | None]:
        return [rows[0] if rows else None for rows in self.every(statement, parameters)]

    def every(
        self, statement: str, parameters: Iterable[Any]
    ) -> Sequence[Sequence[Mapping[str, Any]]]:
        sets = list(parameters)
        if len(sets) < 2:
            return [self.execute(statement, one).fetchall() for one in sets]
        cursor = self.connection.cursor(binary=True, row_factory=dict_row)
        cursor.executemany(statement.encode(), sets, returning=True)
        found: list[Sequence[Mapping[str, Any]]] = []
        while True:
            found.append(cursor.fetchall())
            if not cursor.nextset():
                return found

    def insert(self, statement: str, width: int, values: Sequence[Any]) -> None:
        rows = [values[start : start + width] for start in range(0, len(values), width)]
        self.executemany(statement, rows)


class _MeteredDb(PostgresDb):
    """One that says what the server took for its statements."""

    __slots__ = ("_spent",)

    def __init__(self, connection: Connection, spent: Spent) -> None:
        super().__init__(connection)
        self._spent = spent

    def execute(self, statement: str, parameters: Any = ()) -> psycopg.Cursor[dict[str, Any]]:
        began = time.monotonic()
        try:
            return super().execute(statement, parameters)
        finally:
            self._spent.seconds += time.monotonic() - began


class PostgresStore:
    """A schema in a database. `create=False` refuses where there is none, instead of making it."""

    sql = sql
    boot = ""
    work_seconds = 5.0  # for a worker's own calls: it had better try again than wait

    def __init__(
        self,
        url: str,
        clock: AnyClock | None = None,
        *,
        retention: float = RETENTION_SECONDS,
        create: bool = True,
    ) -> None:
        self.url = url
        self.where = mask(url)
        self.conninfo, self.pooled, self.notify_in_transaction = conninfo_of(url)
        self.store_clock = StoreClock(self._refresh_time)
        self.clock: AnyClock = clock or self.store_clock
        self.store_id = ""
        self.lanes: dict[int, Lane] = {}
        self.searched: dict[int, str] = {}
        self._prepare = not self.pooled
        self._create = create
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._rang_at = 0.0
        self.claimable = PostgresClaimableLanes()
        self.listener = Listener(self)
        self.listener.on_lanes = self.claimable.hear
        self.traits = Traits(
            name="PostgreSQL",
            capabilities=frozenset({*ONE_PLACE, "joins", "joins later", "begins", "roles"}),
            apart=True,
            retention=retention,
            poll_seconds=lambda: self.listener.poll_seconds,
            rules_version=self.listener.rules_version,
        )
        try:
            with self.lend() as connection:
                self.store_id = migrating.open_schema(connection, self.where, create=create)
        except BaseException:
            self.close_connections()
            raise
        _stores.add(self)

    def lease_time(self) -> float:
        # The server's time as well; a clock of somebody else's has one that does not jump.
        if self.clock is self.store_clock:
            return self.clock.now()
        return self.clock.monotonic()

    def follow(self) -> None:
        """Nothing can take the place of a server unseen: its connections break."""

    @contextmanager
    def lend(self, patience: float = CALL_SECONDS) -> Generator[Connection]:
        """A connection for one call or one transaction; its errors in our words."""
        with in_our_words(self.where):
            connection = self._take(patience)
            try:
                if self.store_clock.stale():
                    self._ask_time(connection)
                yield connection
            except _UNPREPARED as error:
                self._prepare = False
                connection.close()
                raise StoreUnreachable(
                    f"the store {self.where} is behind a pooler that hands its sessions around; "
                    "statements are not prepared from now on (add ?pooler=true to the URL)"
                ) from error
            except _READ_ONLY:
                connection.close()  # a primary no more: the next connection may find the new one
                raise
            finally:
                self._give_back(connection)

    def _take(self, patience: float) -> Connection:
        """An idle connection that is as it was left, or a new one."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            connection.patience = patience
            if connection.is_quiet():
                return connection
            # The server, or what stands in between, has hung up. Nothing was sent, so nothing is
            # lost, and whoever asks is not told.
            connection.close()
        connection = self.connect()
        connection.patience = patience
        return connection

    def connect(self) -> Connection:
        """A new connection."""
        return connect(self.conninfo, prepare=self._prepare)

    def _give_back(self, connection: Connection) -> None:
        if connection.closed:
            # What cut this one off may have cut off the others too, without a word on their lines.
            with self._lock:
                doubtful, self._idle = self._idle, []
            for other in doubtful:
                other.close()
            self.listener.doubt()
            return
        if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE and (
            not connection.rings
            or connection.pgconn.transaction_status != pq.TransactionStatus.ACTIVE
        ):
            connection.close()
            return
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and connection.pid == os.getpid():
                connection.used_at = time.monotonic()
                self._idle.append(connection)
                return
        connection.close()

    def _refresh_time(self) -> None:
        # To lend is to ask, where the last answer is old.
        with suppress(PenstockError), self.lend(self.work_seconds):
            pass

    def _ask_time(self, connection: Connection) -> None:
        # The quickest of three answers: what a busy machine adds to the way is not half of it.
        best: tuple[float, float, float] | None = None
        for _ in range(3):
            asked_at = ticks()
            row = connection.execute(sql.clock.encode()).fetchone()
            heard_at = ticks()
            if row is not None and (best is None or heard_at - asked_at < best[2] - best[1]):
                best = row[0], asked_at, heard_at
        if best is not None:
            self.store_clock.measured(*best)

    @contextmanager
    def writing(self, *, durable: bool = True) -> Generator[PostgresDb]:
        """A transaction that writes; all of it is kept, or nothing."""
        with self.lend() as connection, self.transaction(connection, durable=durable) as db:
            yield db

    @contextmanager
    def transaction(
        self,
        connection: Connection,
        *,
        durable: bool = True,
        begin: str = "begin isolation level read committed",
        locks: float | None = None,  # seconds to wait for one; None: nearly as long as for the call
    ) -> Generator[PostgresDb]:
        """On this connection; what is not durable may be lost if the server crashes."""
        # A plan that is kept from when a table was empty must not scan it once it is full.
        local = "; set local enable_seqscan = off; set local jit = off"
        local += "" if durable else "; set local synchronous_commit = off"
        # A session that nobody waits for any more must not go on waiting, with its locks.
        seconds = connection.patience * 0.8 if locks is None else locks
        local += f"; set local lock_timeout = {int(seconds * 1000)}"
        connection.execute(f"{begin}{local}".encode())
        try:
            yield PostgresDb(connection)
            connection.execute("commit")
        except BaseException:
            if not connection.closed:
                connection.execute("rollback")
            raise

    @contextmanager
    def reading(self) -> Generator[PostgresDb]:
        """One consistent look at the store, with one processor of the server."""
        begin = "begin isolation level repeatable read read only"
        begin += "; set local max_parallel_workers_per_gather = 0"
        # Of a day that was not analysed yet the planner takes every kind for rare: it would read
        # and sort the whole day, where the last rows are at the end of an index.
        begin += "; set local enable_bitmapscan = off"
        share = current_share.get()
        if share is None:
            with self.lend() as connection, self.transaction(connection, begin=begin) as db:
                yield db
            return
        begin += f"; set local statement_timeout = {int(LONGEST_QUESTION * 1000)}"
        with (
            share.look() as spent,
            self.lend() as connection,
            self.transaction(connection, begin=begin),
        ):
            yield _MeteredDb(connection, spent)

    def lane(self, db: Any, number: int) -> Lane:
        """The words behind a lane's hash."""
        if number not in self.lanes:
            row = db.execute(sql.lane, (number,)).fetchone()
            if row is None:  # damaged: a task that no worker knows, so that the others flow
                return Lane("unknown", f"lane:{number}")
            self._know_lane(number, row)
        return self.lanes[number]

    def know_lanes(self, connection: Connection, numbers: Iterable[int]) -> None:
        """Read the words of all of these that are not known yet, in one go."""
        unknown = [number for number in numbers if number not in self.lanes]
        if len(unknown) > 1:
            for row in PostgresDb(connection).execute(sql.lanes_of, (bigs(unknown),)):
                self._know_lane(row["hash"], row)

    def _know_lane(self, number: int, row: Mapping[str, Any]) -> None:
        runs_on = tuple(row["runs_on"].split(",")) if row["runs_on"] else ()
        names = (row["queue"], row["task"], row["version"], row["priority"])
        self.searched[number] = row["search"]
        self.lanes[number] = Lane(*names, runs_on, row["app"])

    def rules_changed(self, *, stop: bool) -> None:
        with self.lend() as connection, self.listener.heard_rules():
            told = time.monotonic()
            if not stop or self.pooled:
                connection.execute(sql.tell.encode(), ("rules",))
                silent = self.pooled
            else:
                silent = self._tell_workers(connection)
        if stop and silent:
            # Those who look at the rules for themselves do so every few milliseconds.
            time.sleep(max(0.0, told + STARTING_SECONDS - time.monotonic()))

    def _tell_workers(self, connection: Connection) -> bool:
        """Tell every worker, and wait a while for those who listen; whether others are about."""
        rows = PostgresDb(connection).execute(sql.listeners, (self.lease_time(),)).fetchall()
        waiting = {row["id"] for row in rows if row["listens"]}
        if not waiting:
            connection.execute(sql.tell.encode(), ("rules",))
            return bool(rows)
        heard: list[str] = []

        def hear(notice: psycopg.Notify) -> None:
            heard.append(notice.payload)

        connection.add_notify_handler(hear)
        connection.execute(sql.listen_heard.encode())
        connection.execute(sql.tell.encode(), ("rules",))
        await_heard(connection, waiting, heard)
        connection.execute(sql.unlisten_heard.encode())
        connection.remove_notify_handler(hear)
        return bool(waiting) or any(not row["listens"] for row in rows)

    def forget_claimable(self, lanes: Collection[int] = ()) -> None:
        self.claimable.forget(lanes)

    def notify(self, lanes: Collection[int] = ()) -> None:
        with self.lend() as connection:
            self.notify_on(connection, lanes)

    def notify_on(self, connection: Connection, lanes: Iterable[int]) -> None:
        """After a commit: tell those who wait, unless they were told a moment ago.

        Not within the transaction: a notification holds a lock of the whole server from before the
        commit until it is on the disk. And not waited for.
        """
        now = time.monotonic()
        if now - self._rang_at < RING_SECONDS or connection.closed:
            return
        self._rang_at = now
        numbers = list(dict.fromkeys(lanes))
        payload = ",".join(map(str, numbers)) if len(numbers) <= 50 else ""
        connection.ring(
            f"set local synchronous_commit = off; notify {CHANNEL}, '{payload}'".encode()
        )

    def close_connections(self) -> None:
        _stores.discard(self)
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            if connection.pid == os.getpid():
                connection.close()

    def after_fork_in_child(self) -> None:
        """The connections are the parent's; whoever uses the store here opens others."""
        self._lock = threading.Lock()
        for connection in self._idle:
            connection.disown()
        self._idle = []


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def conninfo_of(url: str) -> tuple[str, bool, bool]:
    """What libpq is told; whether there is a pooler in between; whether joined callers notify."""
    options = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    flags = {"pooler": False, "notify_in_transaction": True}
    for name, default in flags.items():
        value = options.pop(name, str(default)).lower()
        if value not in {"true", "false", "1", "0"}:
            raise Refused(f"{mask(url)}: {name}={value}: true or false")
        flags[name] = value in {"true", "1"}
    defaults = {
        "connect_timeout": str(CONNECT_SECONDS),
        "application_name": "penstock",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "20000",
    }
    if not flags["pooler"]:  # which would not take it, or hand it on to others
        defaults["options"] = r"-c default_transaction_isolation=read\ committed -c lock_timeout=2s"
    # Not by urlunsplit, which drops the slashes of a URL without a host: one of a local socket.
    plain = f"{url.partition('?')[0]}?{urlencode({**defaults, **options}, quote_via=quote)}"
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    readable = authority.count("@") < 2 and "@" not in path  # else part of a password is a host
    with suppress(psycopg.ProgrammingError):
        if readable and conninfo_to_dict(plain):
            return plain, flags["pooler"], flags["notify_in_transaction"]
    # Without what libpq says: it quotes what it cannot read, and that may be the password.
    raise Refused(
        f"{mask(url)} is not postgresql://user:password@host:port/database; in a password write "
        "%40, %2F, %3A, %3F and %25 for @, /, :, ? and %"
    )
