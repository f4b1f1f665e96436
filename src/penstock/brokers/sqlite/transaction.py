"""A job's effects and its end, committed together in one transaction of the same file."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

from penstock.brokers.sqlite.db import SqliteDb
from penstock.brokers.sqlite.errors import FULL, as_penstock_errors
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.recovery import SettleWithin
from penstock.job import Job, Outcome


class SqliteTransaction:
    """A job's effects and its end, committed together in one transaction of the same file."""

    def __init__(self, store: SqliteStore, settle_within: SettleWithin) -> None:
        self.connection = store.connect()
        self._store = store
        self._settle_within = settle_within
        try:
            self.connection.execute("begin immediate")
        except BaseException:
            self.connection.close()
            raise

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        change = Change(self._store, SqliteDb(self.connection), self._store.clock.now())
        try:
            if not self.connection.in_transaction:
                raise RuntimeError(
                    f"the task of job {job.id} ended its transaction() itself: leave commit and "
                    "rollback out, it is committed when the task has returned"
                )
            with as_penstock_errors(self._store.path):
                [accepted] = self._settle_within(change, [(job, outcome)])
                if accepted:
                    self.connection.execute("commit")
        finally:
            self.rollback()
        change.after_commit()
        return accepted

    def broken_by(self, error: BaseException) -> bool:
        # It holds the lock: what is locked is another file of the task's.
        names = (getattr(each, "sqlite_errorname", "") for each in (error, error.__cause__))
        return any(name in FULL or name.startswith("SQLITE_IOERR") for name in names)

    def rollback(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # closed: there is nothing left to undo
            if self.connection.in_transaction:
                self.connection.execute("rollback")
            self.connection.close()
