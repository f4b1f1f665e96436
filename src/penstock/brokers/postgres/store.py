"""The database behind the broker: a pool of connections, transactions, and the server's time.

The pool has no upper limit: a caller takes an idle connection or opens another one, so no thread
waits for another's. Nothing is set per session: behind a pooler, sessions are shared with other
programs. A connection on which a call was cut short is closed.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from penstock.app.clock import AnyClock, ticks
from penstock.app.settings import mask
from penstock.broker.call_deadline import OVER, call_seconds
from penstock.broker.move import check_epoch, planned_epoch
from penstock.broker.read_budget import LONGEST_QUESTION, Spent, current_share
from penstock.broker.traits import ONE_PLACE, Traits
from penstock.broker.values import RETENTION_SECONDS
from penstock.brokers.postgres import migrating
from penstock.brokers.postgres.binary_arrays import int8_array
from penstock.brokers.postgres.claimable_lanes import PostgresClaimableLanes
from penstock.brokers.postgres.connection import CALL_SECONDS, CallTimeout, Connection, connect
from penstock.brokers.postgres.errors import as_penstock_errors
from penstock.brokers.postgres.listening import Listener, wait_for_acknowledgements
from penstock.brokers.postgres.statements import sql
from penstock.brokers.server_clock import StoreClock
from penstock.brokers.tables.sealed_apps import mark_sealed, sealed_apps
from penstock.errors import PenstockError, Refused, StoreUnreachable
from penstock.job import Lane

CONNECT_SECONDS = 5
_ROWS_PER_CALL = 5000
IDLE_CONNECTIONS = 8  # more are closed when they are returned
NOTIFY_SECONDS = 0.005  # at most one notification in this time
NOTIFIED_LANES = 50  # of more lanes, none is named: a notification holds 8000 bytes
CHANNEL = "penstock"
_RULES_SECONDS = 0.005  # so often a worker that gets no notifications reads the rules
_BEGIN = "begin isolation level read committed"
_NOT_PREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


class PostgresDb:
    """Statements on one of our connections: rows as dicts, ids as bytes."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Any = ()) -> psycopg.Cursor[dict[str, Any]]:
        cursor = self.connection.cursor(binary=True, row_factory=dict_row)
        return cursor.execute(statement.encode(), parameters)

    def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        sets = list(parameters)
        # Page by page: psycopg sends all of them as one call, and a call has a deadline.
        for start in range(0, len(sets), _ROWS_PER_CALL):
            page = sets[start : start + _ROWS_PER_CALL]
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
        answers: list[Sequence[Mapping[str, Any]]] = []
        while True:
            answers.append(cursor.fetchall())
            if not cursor.nextset():
                return answers

    def insert(self, statement: str, width: int, values: Sequence[Any]) -> None:
        rows = [values[start : start + width] for start in range(0, len(values), width)]
        self.executemany(statement, rows)


class _MeteredDb(PostgresDb):
    """Adds up how long the server took, for the rate limit of dashboard reads."""

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
    """The schema `penstock` in a database; with `create=False` it must be there already."""

    sql = sql
    boot = ""
    work_seconds = 5.0  # deadline of a worker's own calls: it tries again rather than wait

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
        self._notified_at = 0.0
        self.claimable = PostgresClaimableLanes()
        self.listener = Listener(self)
        self.listener.on_lanes = self.claimable.on_notification
        self.traits = Traits(
            name="PostgreSQL",
            capabilities=frozenset(
                {*ONE_PLACE, "joins", "joins later", "begins", "moves", "quotas", "roles"}
            ),
            apart=True,
            retention=retention,
            poll_seconds=lambda: self.listener.poll_seconds,
            rules_version=self.listener.rules_version,
            digest_key=cache(self._digest_key),
            sealed_apps=lambda: sealed_apps(self),
            mark_sealed=lambda app: mark_sealed(self, app),
            places=self._places,
        )
        try:
            with self.connection() as connection:
                self.store_id = migrating.open_schema(connection, self.where, create=create)
        except BaseException:
            self.close_connections()
            raise
        _stores.add(self)

    def _digest_key(self) -> bytes:
        with self.connection() as connection:
            return bytes.fromhex(migrating.read_meta(connection)["digest_key"])

    def _places(self) -> dict[str, tuple[str, ...]]:
        with self.connection() as connection:
            row = connection.execute(sql.place.encode()).fetchone()
        return {} if row is None else {"": (row[0],)}

    def lease_time(self) -> float:
        # The server's time, which does not jump; a test's clock has a monotonic time for that.
        if self.clock is self.store_clock:
            return self.clock.now()
        return self.clock.monotonic()

    def follow(self) -> None:
        """Nothing to do: if another server takes the place of this one, connections break."""

    @contextmanager
    def connection(self, seconds: float = CALL_SECONDS) -> Generator[Connection]:
        """A connection for one call or one transaction; its errors are raised as Penstock's."""
        with as_penstock_errors(self.where):
            connection = self._idle_or_new(call_seconds(seconds))
            try:
                if self.store_clock.stale():
                    self._measure_time(connection)
                yield connection
            except _NOT_PREPARED as error:
                self._prepare = False
                connection.close()
                raise StoreUnreachable(
                    f"the store {self.where} is behind a pooler in transaction mode; statements "
                    "are not prepared from now on (add ?pooler=true to the URL)"
                ) from error
            except errors.ReadOnlySqlTransaction:
                connection.close()  # a standby now: the next connection may reach the new primary
                raise
            finally:
                self._put_back(connection)

    def _idle_or_new(self, seconds: float) -> Connection:
        if not seconds:
            raise CallTimeout(OVER)
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            connection.call_seconds = seconds
            if connection.is_usable():
                return connection
            # Closed by the server or on the way. Nothing was sent on it, so another will do.
            connection.close()
        connection = self.connect()
        connection.call_seconds = seconds
        return connection

    def connect(self) -> Connection:
        return connect(self.conninfo, prepare=self._prepare)

    def _put_back(self, connection: Connection) -> None:
        if connection.closed:
            # What broke this connection may have broken the idle ones too, unnoticed so far.
            with self._lock:
                idle, self._idle = self._idle, []
            for other in idle:
                other.close()
            self.listener.check_connection()
            return
        status = connection.pgconn.transaction_status
        between_calls = status == pq.TransactionStatus.IDLE or (
            connection.answer_unread and status == pq.TransactionStatus.ACTIVE
        )
        with self._lock:
            room = len(self._idle) < IDLE_CONNECTIONS
            if between_calls and room and connection.pid == os.getpid():
                connection.used_at = time.monotonic()
                self._idle.append(connection)
                return
        connection.close()

    def _refresh_time(self) -> None:
        # Taking a connection measures the time, if the last measurement is old.
        with suppress(PenstockError), self.connection(self.work_seconds):
            pass

    def _measure_time(self, connection: Connection) -> None:
        # The quickest of three answers: a delay on one way only would shift the result.
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
        """A transaction that writes; all of it is committed, or nothing."""
        with self.connection() as connection, self.transaction(connection, durable=durable) as db:
            yield db

    @contextmanager
    def transaction(
        self,
        connection: Connection,
        *,
        durable: bool = True,
        begin: str = _BEGIN,
        lock_seconds: float | None = None,  # None: a bit less than the deadline of a call
    ) -> Generator[PostgresDb]:
        """On this connection; what is not durable may be lost if the server crashes."""
        # A cached plan, made when a table was empty, must not scan it once it is full.
        local = "; set local enable_seqscan = off; set local jit = off"
        local += "" if durable else "; set local synchronous_commit = off"
        # Else the server would wait for a lock, holding others, after our deadline has passed.
        seconds = connection.call_seconds * 0.8 if lock_seconds is None else lock_seconds
        local += f"; set local lock_timeout = {int(seconds * 1000)}"
        epoch = planned_epoch() if begin == _BEGIN else 0
        held = f"; {sql.hold_map} {sql.map_epoch}" if epoch else ""
        cursor = connection.execute(f"{begin}{local}{held}".encode())
        try:
            if epoch:
                _check_map(cursor)
            yield PostgresDb(connection)
            connection.execute("commit")
        except BaseException:
            if not connection.closed:
                connection.execute("rollback")
            raise

    @contextmanager
    def reading(self) -> Generator[PostgresDb]:
        """A read-only snapshot of the store; takes at most one CPU of the server."""
        begin = "begin isolation level repeatable read read only"
        begin += "; set local max_parallel_workers_per_gather = 0"
        # Before a day's partition is analysed, the planner takes every kind of event for rare: it
        # would read and sort the whole day, where the last rows are at the end of an index.
        begin += "; set local enable_bitmapscan = off"
        share = current_share.get()
        if share is None:
            with self.connection() as connection, self.transaction(connection, begin=begin) as db:
                yield db
            return
        begin += f"; set local statement_timeout = {int(LONGEST_QUESTION * 1000)}"
        with (
            share.look() as spent,
            self.connection() as connection,
            self.transaction(connection, begin=begin),
        ):
            yield _MeteredDb(connection, spent)

    def lane(self, db: Any, number: int) -> Lane:
        """The lane of a hash, read once and then remembered."""
        if number not in self.lanes:
            row = db.execute(sql.lane, (number,)).fetchone()
            if row is None:  # a damaged store: no worker knows this task, and other lanes go on
                return Lane("unknown", f"lane:{number}")
            self._remember_lane(number, row)
        return self.lanes[number]

    def load_lanes(self, connection: Connection, numbers: Iterable[int]) -> None:
        """Read all of these lanes that are not known yet, in one round trip."""
        unknown = [number for number in numbers if number not in self.lanes]
        if len(unknown) > 1:
            for row in PostgresDb(connection).execute(sql.lanes_of, (int8_array(unknown),)):
                self._remember_lane(row["hash"], row)

    def _remember_lane(self, number: int, row: Mapping[str, Any]) -> None:
        runs_on = tuple(row["runs_on"].split(",")) if row["runs_on"] else ()
        names = (row["queue"], row["task"], row["version"], row["priority"])
        self.searched[number] = row["search"]
        self.lanes[number] = Lane(*names, runs_on, row["app"])

    def rules_changed(self, *, stop: bool) -> None:
        with self.connection() as connection, self.listener.own_notification_of_rules():
            notified_at = time.monotonic()
            if not stop or self.pooled:
                connection.execute(sql.notify.encode(), ("rules",))
                some_poll = self.pooled
            else:
                some_poll = self._notify_workers_of_rules(connection)
        if stop and some_poll:
            time.sleep(max(0.0, notified_at + _RULES_SECONDS - time.monotonic()))

    def _notify_workers_of_rules(self, connection: Connection) -> bool:
        """Notify all workers and wait for acknowledgements; whether some did not send theirs."""
        rows = PostgresDb(connection).execute(sql.listeners, (self.lease_time(),)).fetchall()
        waiting = {row["id"] for row in rows if row["listens"]}
        if not waiting:
            connection.execute(sql.notify.encode(), ("rules",))
            return bool(rows)
        payloads: list[str] = []

        def keep(notice: psycopg.Notify) -> None:
            payloads.append(notice.payload)

        connection.add_notify_handler(keep)
        connection.execute(sql.listen_acknowledged.encode())
        connection.execute(sql.notify.encode(), ("rules",))
        wait_for_acknowledgements(connection, waiting, payloads)
        connection.execute(sql.unlisten_acknowledged.encode())
        connection.remove_notify_handler(keep)
        return bool(waiting) or any(not row["listens"] for row in rows)

    def forget_claimable(self, lanes: Collection[int] = ()) -> None:
        self.claimable.forget(lanes)

    def notify(self, lanes: Collection[int] = ()) -> None:
        with self.connection() as connection:
            self.notify_on(connection, lanes)

    def notify_on(self, connection: Connection, lanes: Iterable[int]) -> None:
        """After a commit: notify who waits for work, unless that was done a moment ago.

        Not within the transaction: a NOTIFY takes a lock of the whole server until the commit is
        on the disk. Its answer is not waited for.
        """
        now = time.monotonic()
        if now - self._notified_at < NOTIFY_SECONDS or connection.closed:
            return
        self._notified_at = now
        payload = lanes_payload(set(lanes))
        connection.send_unawaited(
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
        """The connections are the parent's; this process opens its own."""
        self._lock = threading.Lock()
        for connection in self._idle:
            connection.disown()
        self._idle = []


_stores: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _check_map(cursor: psycopg.Cursor[Any]) -> None:
    """Refuse a write that was planned with an older map of shards: the last answer is its epoch."""
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    check_epoch(None if row is None else row[0])


def lanes_payload(lanes: Collection[int]) -> str:
    """The payload of a notification about these lanes; empty: some lane."""
    return ",".join(map(str, lanes)) if len(lanes) <= NOTIFIED_LANES else ""


def conninfo_of(url: str) -> tuple[str, bool, bool]:
    """The connection string for libpq, and the URL's `pooler` and `notify_in_transaction`."""
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
    if not flags["pooler"]:  # a pooler refuses options, or applies them to sessions of others
        defaults["options"] = r"-c default_transaction_isolation=read\ committed -c lock_timeout=2s"
    # Not by urlunsplit: it drops the slashes of a URL without a host (a Unix socket).
    plain = f"{url.partition('?')[0]}?{urlencode({**defaults, **options}, quote_via=quote)}"
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    # Another @ is that of an unescaped password, and libpq would take part of it for the host.
    readable = authority.count("@") < 2 and "@" not in path
    with suppress(psycopg.ProgrammingError):
        if readable and conninfo_to_dict(plain):
            return plain, flags["pooler"], flags["notify_in_transaction"]
    # libpq's own message is left out: it quotes what it cannot parse, perhaps the password.
    raise Refused(
        f"{mask(url)} is not postgresql://user:password@host:port/database; in a password write "
        "%40, %2F, %3A, %3F and %25 for @, /, :, ? and %"
    )
