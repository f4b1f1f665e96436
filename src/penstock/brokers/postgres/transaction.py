"""A job's effects and its end, committed together in one transaction of the same database.

The task gets a psycopg connection whose commit and rollback work on a savepoint, so that
SQLAlchemy can be bound to it, too. The only real commit is that of the job's end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from penstock.brokers.postgres.errors import FULL, as_penstock_errors
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.recovery import SettleWithin
from penstock.job import Job, Outcome


class EffectsConnection(psycopg.Connection[Any]):
    """The connection that a task gets, inside of its job's transaction.

    `commit` keeps what was done so far, to be committed with the job's end; `rollback` undoes what
    was done since; `close` leaves it open. Values are converted as psycopg does by default.
    """

    def commit(self) -> None:
        self.execute("release savepoint penstock; savepoint penstock")

    def rollback(self) -> None:
        if self.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.execute("rollback to savepoint penstock")

    def close(self) -> None:
        """Nothing: the session ends with the job's transaction."""


class PostgresTransaction:
    """One transaction on a session of its own: no setting of the task outlives it."""

    def __init__(self, store: PostgresStore, settle_within: SettleWithin) -> None:
        self._store = store
        self._own = own = store.connect()
        self._settle_within = settle_within
        try:
            own.execute("begin; savepoint penstock")
        except BaseException:
            own.close()
            raise
        self.connection = EffectsConnection(own.pgconn)
        # Its automatic names for prepared statements would clash with those of `own`.
        self.connection.prepare_threshold = None

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        change = Change(self._store, PostgresDb(self._own), self._store.clock.now())
        try:
            if self._own.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                raise RuntimeError(
                    f"the task of job {job.id} ended its transaction() itself: leave commit and "
                    "rollback out, it is committed when the task has returned"
                )
            with as_penstock_errors(self._store.where):
                [accepted] = self._settle_within(change, [(job, outcome)])
                if accepted:
                    self._own.execute("commit")
        finally:
            self.rollback()
        change.after_commit()
        return accepted

    def broken_by(self, error: BaseException) -> bool:
        causes = [cause for cause in (error, error.__cause__) if isinstance(cause, psycopg.Error)]
        if not causes:
            return False
        standby = self._own.pgconn.parameter_status(b"in_hot_standby") == b"on"
        return self._own.closed or standby or any(isinstance(cause, FULL) for cause in causes)

    def rollback(self) -> None:
        with suppress(psycopg.Error):
            if not self._own.closed:
                self._own.execute("rollback")
        self._own.close()
