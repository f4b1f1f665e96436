"""The file behind the broker: its connections, transactions and migrations, and forks.

One connection writes and one reads, each guarded by a lock. Both are closed before a fork and
opened again on its two sides: SQLite keeps a list of the locks that its process has, a child takes
over the list but not the locks, and its jobs would go into a log that the parent may delete.
A transaction that writes begins with `begin immediate`: an upgrade later might fail.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.broker.call_deadline import OVER, call_deadline, call_seconds
from penstock.broker.move import check_epoch, planned_epoch
from penstock.broker.read_budget import current_share
from penstock.broker.traits import ONE_PLACE, Traits
from penstock.broker.values import RETENTION_SECONDS
from penstock.brokers.sqlite.claimable_lanes import SqliteClaimableLanes
from penstock.brokers.sqlite.db import SqliteDb
from penstock.brokers.sqlite.errors import as_penstock_errors
from penstock.brokers.sqlite.shared_hints import SharedHints
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.brokers.sqlite.wake import WakeSender
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.development_store import check_released
from penstock.brokers.tables.sealed_apps import mark_sealed, sealed_apps
from penstock.enqueue.caller_connection import driver_connection
from penstock.errors import PenstockError, Refused, SchemaTooNew, StoreUnreachable, WrongUrl
from penstock.job import Lane

BUSY_SECONDS = 30.0
POLL_SECONDS = 2.0  # only a safety net: every commit is noticed, and due times are known
_MIGRATE_SECONDS = 5.0
START_ANEW = (
    "move the file away (in a database of your own: drop its tables that begin with penstock_), or "
    "name another one with --url"
)
_BUSY_LOOK_SECONDS = 0.000_5
_STARTING_SECONDS = 0.005
_OLDEST_SQLITE = (3, 37)  # which has strict tables
_LOCKED = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_BUSY_RECOVERY"}
_CLOSED_FOR_FORK = 0  # no process has this number


class SqliteStore:
    """The open file. `create=False` refuses a path where there is none, instead of making one."""

    sql = sql

    def __init__(
        self,
        path: str | Path,
        clock: AnyClock | None = None,
        *,
        retention: float = RETENTION_SECONDS,
        create: bool = True,
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.traits = Traits(
            name="SQLite",
            capabilities=frozenset({*ONE_PLACE, "joins", "begins", "moves", "quotas"}),
            retention=retention,
            poll_seconds=lambda: POLL_SECONDS,
            rules_version=self.rules_version,
            digest_key=cache(self._digest_key),
            sealed_apps=lambda: sealed_apps(self),
            mark_sealed=lambda app: mark_sealed(self, app),
        )
        self.clock = clock or SYSTEM_CLOCK
        self.busy_seconds = BUSY_SECONDS  # that a call waits for whoever has the file
        self.store_id = ""
        self.boot = _boot()
        self.lanes: dict[int, Lane] = {}
        self.searched: dict[int, str] = {}
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            oldest = ".".join(map(str, _OLDEST_SQLITE))
            message = (
                f"this Python comes with SQLite {sqlite3.sqlite_version}, and stores need {oldest} "
                "or newer; use a newer Python or system"
            )
            raise PenstockError(message)
        if not create and not self.path.exists():
            message = (
                f"there is no store at {self.path}; a worker or the first enqueue makes it, or "
                "name another one with --url"
            )
            raise WrongUrl(message)
        self.claimable = SqliteClaimableLanes()
        self.wake_sender = WakeSender(self.path)
        self._shared: SharedHints | None = None
        self._file: tuple[int, int] | None = None
        self._renew_locks()
        self._open()
        _stores.add(self)

    def _renew_locks(self) -> None:
        self._writer_lock = threading.RLock()
        self._reader_lock = threading.RLock()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._file = self._file_there() or self._file
        self._durable = True
        try:
            with as_penstock_errors(self.path):
                self._open_writer()
                self._shared = self._shared or SharedHints(self.path)
                self._reader = self.connect()
                self._reader_db = SqliteDb(self._reader)
                self._file = self._file_there()
        except BaseException:
            self._pid = _CLOSED_FOR_FORK  # so that the next call tries again
            raise

    def _file_there(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def follow(self) -> None:
        """Reopen if another file is at the path now; refuse if there is none.

        A file that was deleted or replaced stays open in this process, but nobody else sees it: a
        worker would miss all that is enqueued from then on, and a dashboard show nothing new.
        """
        if self._file is None:  # it is being created
            return
        there = self._file_there()
        if there is None:
            raise StoreUnreachable(
                f"the store {self.path} is gone: its file was moved or deleted while in use; put "
                "it back, or start again with a new one"
            )
        if there == self._file or self._pid != os.getpid():
            return
        with self._writer_lock, self._reader_lock:
            if there == self._file or self._pid != os.getpid():
                return  # another thread was quicker
            if self._writer.in_transaction or self._reader.in_transaction:
                return  # a transaction of this thread, which ends in the file where it began
            self._writer.close()
            self._reader.close()
            self._shared = None
            self.lanes.clear()
            self.searched.clear()
            # While both locks are held: other threads must not meet closed connections.
            self._open()

    def _open_writer(self) -> None:
        # Readable by owner and group only: jobs carry private data.
        with contextlib.suppress(OSError):  # it exists, or SQLite will say why it cannot
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660))
        until = time.monotonic() + _MIGRATE_SECONDS
        while True:
            try:
                self._writer = self.connect()
                self._writer_db = SqliteDb(self._writer)
                self._writer.execute("pragma busy_timeout = 0")  # see _begin
                self.migrate()
            except (sqlite3.OperationalError, StoreUnreachable) as error:
                cause = error.__cause__ or error
                if getattr(cause, "sqlite_errorname", "") not in _LOCKED:
                    raise
                if time.monotonic() > until:
                    raise StoreUnreachable(
                        f"the tables of {self.path} cannot be created while a transaction holds "
                        "the file; to enqueue in that transaction, run `penstock migrate` before"
                    ) from error
                time.sleep(_BUSY_LOOK_SECONDS * 10)  # others open it too
                continue
            return

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode: transactions begin and end explicitly."""
        connection = sqlite3.connect(
            self.path, timeout=self.busy_seconds, isolation_level=None, check_same_thread=False
        )
        # One damaged text must not make a whole page unreadable.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma cache_size = -65536")
        connection.execute("pragma wal_autocheckpoint = 4000")
        return connection

    def _reopen(self) -> None:
        if current_share.get() is not None:  # a dashboard: there may be no worker that notices
            self.follow()
        # Only a forked child has to, or a parent that could not do it right after the fork.
        if self._pid != os.getpid():
            with self._writer_lock, self._reader_lock:
                if self._pid != os.getpid():
                    self._open()

    def before_fork(self) -> None:
        """Wait for what is being written or read, then close the file."""
        self._held = [
            lock
            for lock in (self._writer_lock, self._reader_lock)
            if lock.acquire(timeout=BUSY_SECONDS)
        ]
        if self._pid != os.getpid():
            return
        if len(self._held) < 2 or self._writer.in_transaction or self._reader.in_transaction:
            # A transaction that does not end: the child must at least not close the connections.
            _inherited.append((self._writer, self._reader))
            return
        self._writer.close()
        self._reader.close()
        self._pid = _CLOSED_FOR_FORK

    def after_fork_in_parent(self) -> None:
        """Open the file again, and release the locks."""
        try:
            if self._pid == _CLOSED_FOR_FORK:
                with contextlib.suppress(PenstockError):
                    self._open()
        finally:
            for lock in self._held:
                lock.release()

    def after_fork_in_child(self) -> None:
        """The first use in this process opens the file."""
        self._renew_locks()
        self._pid = _CLOSED_FOR_FORK

    @contextmanager
    def writing(
        self, *, durable: bool = True, patience: float | None = None
    ) -> Generator[SqliteDb]:
        """A transaction that writes; all of it is kept, or nothing.

        Not durable means that the next durable commit carries it to the disk. That is enough for a
        claim: a power cut that loses it has also ended the worker that held it.
        """
        self._reopen()
        with self._writer_lock, as_penstock_errors(self.path):
            if durable != self._durable:
                self._writer.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
                self._durable = durable
            self._begin(self.busy_seconds if patience is None else patience)
            try:
                if planned_epoch():
                    self._check_map()
                yield self._writer_db
                self._writer.execute("commit")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("rollback")
                raise

    def _check_map(self) -> None:
        """Refuse a write that was planned with an older map of shards."""
        row = self._writer_db.execute(sql.map_epoch).fetchone()
        check_epoch(None if row is None else row["epoch"])

    def _begin(self, patience: float) -> None:
        # Not SQLite's own busy handler: it sleeps up to 100 ms between two tries, and a busy worker
        # leaves the lock free for a millisecond at a time. A waiting process says so in shared
        # memory, and the next one that comes lets it go first: a pause must not wait for long.
        shared = self._shared
        if shared and shared.somebody_waits():
            time.sleep(_BUSY_LOOK_SECONDS * 2)
        seconds = call_seconds(patience)
        if not seconds:
            raise sqlite3.OperationalError(OVER)
        until = time.monotonic() + seconds
        waited = False
        while True:
            try:
                self._writer.execute("begin immediate")
                break
            except sqlite3.OperationalError as error:
                late = time.monotonic() > min(until, call_deadline())
                if late or error.sqlite_errorname != "SQLITE_BUSY":
                    raise
            waited = True
            if shared:
                shared.waits()
            time.sleep(_BUSY_LOOK_SECONDS)
        if waited and shared:
            shared.waits_no_more()

    @contextmanager
    def joining(self, connection: Any) -> Generator[SqliteDb]:
        """The caller's own transaction, if it is one of this very database."""
        connection = driver_connection(connection)
        if not isinstance(connection, sqlite3.Connection):
            message = (
                f"connection is a {type(connection).__name__}; the store is the SQLite file "
                f"{self.path}, so it must be a sqlite3 connection (or SQLAlchemy's) to that file"
            )
            raise Refused(message)
        self._reopen()
        db = SqliteDb(connection)
        try:
            row = db.execute(sql.meta_value, ("store",)).fetchone()
        except sqlite3.OperationalError:
            row = None
        if row is None or row["value"] != self.store_id:
            message = (
                f"connection belongs to another database than the app's, {self.path}; jobs can be "
                "committed only with data of the same file. Nothing was written"
            )
            raise Refused(message)
        with as_penstock_errors(self.path):
            autocommit = connection.isolation_level is None and not connection.in_transaction
            # A savepoint: a refusal half-way leaves the caller's own transaction as it was. But it
            # does not make sqlite3 begin a transaction, as the caller's first insert would.
            if connection.isolation_level is not None and not connection.in_transaction:
                db.execute("begin immediate")
            db.execute("savepoint penstock")
            try:
                yield db
            except BaseException:
                if connection.in_transaction:
                    db.execute("rollback to penstock")
                    db.execute("release penstock")
                raise
            db.execute("release penstock")
            if autocommit and connection.in_transaction:
                connection.commit()

    @contextmanager
    def reading(self) -> Generator[SqliteDb]:
        """A read transaction: one consistent view of the store."""
        self._reopen()
        with self._reader_lock, as_penstock_errors(self.path):
            self._reader.execute("begin")
            try:
                yield self._reader_db
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("rollback")

    def migrate(self, steps: Sequence[tuple[int, str]] | None = None) -> int:
        """Bring the schema forward; returns the number it stands at. A newer one is refused."""
        steps = steps or migrations()
        newest = steps[-1][0]
        found = self._schema()
        if found < newest:
            # Not for long: the caller itself may hold the file, and would wait for itself.
            with self.writing(patience=_MIGRATE_SECONDS) as db:
                found = self._schema()  # another process may have migrated meanwhile
                for number, script in steps:
                    if number > found:
                        for statement in _statements(script):
                            db.execute(statement)
                        db.execute(sql.put_meta, {"name": "schema", "value": str(number)})
                if not found:
                    db.execute(sql.put_meta, {"name": "store", "value": str(uuid.uuid4())})
                found = newest
        if found > newest:
            message = (
                f"the store {self.path} has schema {found}, this Penstock knows {newest}; "
                "upgrade Penstock here before it opens this store"
            )
            raise SchemaTooNew(message)
        self.store_id = self._meta()["store"]
        return found

    def _schema(self) -> int:
        return int(self._meta().get("schema", 0))

    def _meta(self) -> dict[str, str]:
        db = self._writer_db
        if not db.execute(sql.has_meta).fetchone()[0]:
            return {}
        meta = {row["name"]: row["value"] for row in db.execute(sql.meta)}
        check_released(meta, str(self.path), START_ANEW)
        return meta

    def _digest_key(self) -> bytes:
        with self.reading() as db:
            return bytes.fromhex(db.execute(sql.meta_value, ("digest_key",)).fetchone()["value"])

    def lease_time(self) -> float:
        """Monotonic: `boot` says which one it started with."""
        return self.clock.monotonic()

    def lane(self, db: Db, number: int) -> Lane:
        """The lane of this hash."""
        if number not in self.lanes:
            # Only this lane: a caller's transaction may show others that are never committed.
            row = db.execute(sql.lane, (number,)).fetchone()
            if row is None:  # damaged: a task that no worker knows; other lanes go on
                return Lane("unknown", f"lane:{number}")
            self.searched[number] = row["search"]
            self.lanes[number] = Lane(
                row["queue"],
                row["task"],
                row["version"],
                row["priority"],
                tuple(row["runs_on"].split(",")) if row["runs_on"] else (),
                row["app"],
            )
        return self.lanes[number]

    def rules_version(self) -> int:
        return self._shared.rules_version() if self._shared else 0

    def rules_changed(self, *, stop: bool) -> None:
        if self._shared:
            self._shared.rules_changed()
        if stop:
            # A hand that read the rules just before this starts its job within this time.
            time.sleep(_STARTING_SECONDS)

    def forget_claimable(self, lanes: Collection[int] = ()) -> None:
        del lanes  # all are read again: 20 us
        self.claimable.forget()

    def notify(self, lanes: Collection[int] = ()) -> None:
        del lanes  # a datagram carries no lanes
        self.forget_claimable()
        self.wake_sender.send()

    def data_version(self) -> int:
        """A number that changes when another connection, here or elsewhere, has committed."""
        self._reopen()
        with self._reader_lock, as_penstock_errors(self.path):
            return self._reader.execute("pragma data_version").fetchone()[0]

    def close_connections(self) -> None:
        self.wake_sender.close()
        _stores.discard(self)
        if self._pid == os.getpid():
            with self._writer_lock, self._reader_lock:
                self._writer.close()
                self._reader.close()
        if self._shared:
            self._shared.close()
            self._shared = None


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_inherited: list[Any] = []
_forking: list[SqliteStore] = []
_one_fork = threading.Lock()  # held while `_forking` and what its stores hold belong to one thread


def _before_fork() -> None:
    _one_fork.acquire()
    _forking[:] = _stores
    for store in _forking:
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _forking:
        store.after_fork_in_parent()
    _forking.clear()
    _one_fork.release()


def _after_fork_in_child() -> None:
    for store in _forking:
        store.after_fork_in_child()
    _forking.clear()
    _one_fork.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


def _statements(script: str) -> Generator[str]:
    # executescript would commit what is open; a migration is one transaction.
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _boot() -> str:
    # Monotonic time starts anew with each boot: a lease of another one is over.
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
