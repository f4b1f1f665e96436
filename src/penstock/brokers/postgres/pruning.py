"""Prune: old days of history and sent ids are dropped as partitions, the rest page by page.

A partition is dropped if all of its day is old and nothing in it is to be kept longer. No lock is
waited for longer than a moment: what is in use is pruned the next time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import errors

from penstock.broker.values import STAGED_SECONDS
from penstock.brokers.positions import FARTHEST_POSITION, number_of
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.recovery import LOCK_SECONDS, fold
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.flow_needs import Place, place_of
from penstock.brokers.tables.kept_secrets import forget_kept_secrets
from penstock.brokers.tables.lake_marks import MarkRows
from penstock.brokers.tables.worker_rows import expire
from penstock.job import State

PAGE_ROWS = 1000


class PostgresPruning:
    """Prune; each page is a transaction of its own."""

    def __init__(
        self, store: PostgresStore, marks: MarkRows, discard: Callable[[str], None]
    ) -> None:
        self.store = store
        self.clock = store.clock
        self._marks = marks
        self._discard = discard

    def prune(self, before: float) -> int:
        now = self.clock.now()
        with self.store.writing() as db:
            change = Change(self.store, db, now)
            expire(change)
            # First: once ids from before are refused, they need not be remembered any more.
            db.execute(sql.put_pruned, {"before": before})
            change.finish()
            self._marks.write_gaps(change, before)
        change.after_commit()
        self._forget_kept_secrets(now)  # not counted: the rows stay
        removed = self._drop_days(before, now)
        removed += self._prune_jobs(before, now)
        parameters: dict[str, Any] = {"before": before, "now": now, "most": PAGE_ROWS}
        removed += self._prune_history(parameters)
        removed += self._pages(sql.prune_sent, parameters)
        removed += self._pages(sql.prune_derived, parameters)
        self._pages(sql.prune_bodies, parameters)  # not counted: the rows stay
        self._pages(sql.prune_states, parameters)  # not counted: the rows stay
        removed += self._pages(sql.prune_notes, parameters)
        removed += self._pages(sql.prune_batches, parameters)
        removed += self._pages(sql.prune_published, parameters)
        removed += self._pages(sql.prune_flows, parameters)
        for statement in (
            *(sql.prune_tags, sql.prune_workers, sql.prune_unique, sql.prune_starts),
            sql.prune_sealed,
        ):
            self._pages(statement, parameters)
        with self.store.reading() as db:
            old = db.execute(sql.prune_staged, {"now": now, "staged": STAGED_SECONDS}).fetchall()
        for row in old:
            self._discard(row["write"])
        fold(self.store)
        return removed

    def _pages(self, statement: str, parameters: dict[str, Any]) -> int:
        removed = 0
        while True:
            with self.store.writing() as db:
                gone = db.execute(statement, parameters).rowcount
            removed += gone
            if gone < PAGE_ROWS:
                return removed

    def _forget_kept_secrets(self, now: float) -> None:
        jobs = PAGE_ROWS
        while jobs == PAGE_ROWS:
            with self.store.writing() as db:
                jobs = forget_kept_secrets(self.store, db, now, PAGE_ROWS)

    def _prune_history(self, parameters: dict[str, Any]) -> int:
        removed = 0
        with self.store.reading() as db:
            row = db.execute(sql.may_prune_evidence).fetchone()
        # What this login may not delete is left out: pages full of it would never end.
        parameters = {**parameters, "evidence": bool(row and row["may"])}
        for statement in (sql.prune, sql.prune_past):
            gone = PAGE_ROWS
            while gone == PAGE_ROWS:
                with self.store.writing() as db:
                    db.execute(sql.share_marks)
                    marks = self._marks.within(db)
                    reached = [number_of(mark.position) for mark in marks]
                    bounds = {
                        "lowest": min(reached, default=FARTHEST_POSITION),
                        "past": parameters["before"] - min((m.hold for m in marks), default=0.0),
                    }
                    gone = db.execute(statement, {**parameters, **bounds}).rowcount
                    if not parameters["evidence"]:
                        row = db.execute(sql.prune_evidence, {**parameters, **bounds}).fetchone()
                        removed += row["rows"] if row else 0
                removed += gone
        return removed

    def _prune_jobs(self, before: float, now: float) -> int:
        removed = 0
        while True:
            with self.store.writing() as db:
                change = Change(self.store, db, now)
                parameters = {"before": before, "now": now, "most": PAGE_ROWS}
                rows = db.execute(sql.prune_jobs, parameters).fetchall()
                for row in rows:
                    change.tally[row["lane"], State(row["state"]), row["minute"]] -= 1
                    change.deleted.append((row["id"],))
                    change.forget_lasting(row["id"])
                change.finish()
            self._count_as_lost(
                {node for row in rows if row["body"] and (node := place_of(row["body"]))}
            )
            removed += len(rows)
            if len(rows) < PAGE_ROWS:
                return removed

    def _count_as_lost(self, nodes: set[Place]) -> None:
        # A transaction of its own: the lock of a flow must come before those of its ended jobs.
        if nodes:
            with self.store.writing() as db:
                change = Change(self.store, db, self.clock.now())
                change.lost |= nodes
                change.finish()
            change.after_commit()

    def _drop_days(self, before: float, now: float) -> int:
        """Drop the partitions of old days; how many rows that were."""
        removed = 0
        with self.store.connection(600.0) as connection:
            db = PostgresDb(connection)
            times = {"before": before, "now": now}
            for row in db.execute(sql.old_days, times).fetchall():
                removed += self._drop_day(connection, row["partition"], times)
        return removed

    def _drop_day(self, connection: Connection, partition: str, times: dict[str, float]) -> int:
        for drop in (True, False):
            try:
                with self.store.transaction(connection, lock_seconds=LOCK_SECONDS) as db:
                    db.execute(sql.share_marks)
                    # Again under the lock: a lake that was restored may need this day once more.
                    if self._marks.within(db):
                        old = db.execute(sql.old_days, times).fetchall()
                        if partition not in {row["partition"] for row in old}:
                            return 0
                    row = db.execute(sql.drop_day, (partition, drop)).fetchone()
                    return row["rows"] if row else 0
            except (errors.LockNotAvailable, errors.InsufficientPrivilege):
                continue
            except errors.UndefinedTable:
                return 0  # another process dropped it
        return 0
