"""Prune and fold: what ended long ago goes a day at a time, and counts are added up.

History and sent ids are partitioned by day. A day that is over and holds nothing to be kept longer
is dropped as a whole; everything else goes page by page. No lock is waited for longer than a
moment: what is in use is pruned the next time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import errors

from penstock.broker.lake_mark import Mark
from penstock.broker.slice import FARTHEST_POSITION, check_last
from penstock.broker.values import STAGED_SECONDS
from penstock.broker.views import Event
from penstock.brokers.postgres.binary_arrays import uuids
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.staging import PostgresStaging
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, again
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.flow_needs import Place, place_of
from penstock.brokers.tables.job_actions import Act, Touched
from penstock.brokers.tables.whole_flows import ActOnFlow
from penstock.job import State

PRUNED_AT_ONCE = 1000
AHEAD_DAYS = 7
FOLD_SECONDS = 5.0
_DAY = 86400
_SETTLE_SECONDS = 0.5  # how long a reader waits for writers that are about to commit
_LOOK_SECONDS = 0.005
_BRIEFLY = 0.1


class PostgresPruning(PostgresStaging):
    """Prune, recover's chores, and history as readers need it."""

    _folded_at = -1.0
    _days_made = -1

    @again
    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        moved = super().recover(by, dead, started)
        if dead is not None:
            self.registered.pop(dead, None)  # a process may see many workers come and go
        if by is not None:
            self._keep_house()
        return moved

    @again
    def _each(self, ids: Sequence[str], kind: str, told: Mapping[str, str], act: Act) -> list[str]:
        return super()._each(ids, kind, told, act)

    @again
    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        return super().signal(name, value, author, reason)

    @again
    def _all_of(self, flow: str, kind: str, author: str, reason: str, act: ActOnFlow) -> list[str]:
        return super()._all_of(flow, kind, author, reason, act)

    @again
    def record(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        super().record(kind, author, reason, data)

    @again
    def set_mark(self, mark: Mark, *, back: bool = False) -> Mark:
        return super().set_mark(mark, back=back)

    def _keep_claims_out(self, change: Change) -> None:
        change.db.execute(sql.keep_claims_out)

    def _cancel_moving(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._twice(super()._cancel_moving, change, wanted)

    def _delete(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._twice(super()._delete, change, wanted)

    def _members_among(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Place]:
        found = db.execute(sql.members_among, (uuids(wanted),)).fetchall() if wanted else ()
        places = {row["id"]: place_of(row["body"]) for row in found}
        return {raw: place for raw, place in places.items() if place is not None}

    def _twice(self, act: Act, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        """Look again for what was not found, with claims kept out.

        A parcel that a claim cuts meanwhile is another row by then, and may be cut again.
        """
        touched = act(change, wanted)
        if left := [raw for raw in wanted if raw not in touched]:
            change.write_places()  # nothing is counted yet: locks of flows come last
            self._keep_claims_out(change)
            touched |= act(change, left)
        return touched

    def _keep_house(self) -> None:
        """The chores that no caller waits for: counts are folded, the next days get partitions."""
        now = time.monotonic()
        if self._folded_at < 0:
            self._folded_at = now  # a worker that just came has nothing to fold
        elif now - self._folded_at >= FOLD_SECONDS and self.moved:
            self._folded_at, self.moved = now, False
            self.fold()
        day = int(self.clock.now() // _DAY)
        if self._days_made != day:
            self._days_made = day
            self.make_days()

    def fold(self) -> None:
        """Add up what every transaction added to the counts."""
        with self.store.writing(durable=False) as db:
            db.execute(sql.fold)

    def make_days(self) -> None:
        """Make the partitions of today and the coming week, where there are none."""
        today = int(self.clock.now() // _DAY)
        with self.store.lend() as connection:
            for day in range(today, today + AHEAD_DAYS + 1):
                try:
                    with self.store.transaction(connection, locks=_BRIEFLY) as db:
                        db.execute(sql.make_day, (day,))
                except (
                    errors.LockNotAvailable,
                    errors.CheckViolation,
                    errors.InsufficientPrivilege,
                ):
                    continue  # its rows go to the partition for all others, and from there by row

    def prune(self, before: float) -> int:
        now = self.clock.now()
        with self.store.writing() as db:
            change = Change(self.store, db, now)
            self._expire(change)
            # First of all: from now on ids from before are refused, and need not be remembered.
            db.execute(sql.put_pruned, {"before": before})
            change.finish()
            self._write_gaps(change, before)
        self._tell(change)
        removed = self._drop_days(before, now)
        removed += self._prune_jobs(before, now)
        parameters: dict[str, Any] = {"before": before, "now": now, "most": PRUNED_AT_ONCE}
        removed += self._prune_history(parameters)
        removed += self._pages(sql.prune_sent, parameters)
        removed += self._pages(sql.prune_derived, parameters)
        self._pages(sql.prune_bodies, parameters)  # not counted: the rows stay
        removed += self._pages(sql.prune_notes, parameters)
        removed += self._pages(sql.prune_batches, parameters)
        removed += self._pages(sql.prune_published, parameters)
        removed += self._pages(sql.prune_flows, parameters)
        for statement in (sql.prune_tags, sql.prune_workers, sql.prune_unique, sql.prune_starts):
            self._pages(statement, parameters)
        with self.store.reading() as db:
            old = db.execute(sql.prune_staged, {"now": now, "staged": STAGED_SECONDS}).fetchall()
        for row in old:
            self.discard(row["write"])
        self.fold()
        return removed

    def _pages(self, statement: str, parameters: dict[str, Any]) -> int:
        removed = 0
        while True:
            with self.store.writing() as db:
                gone = db.execute(statement, parameters).rowcount
            removed += gone
            if gone < PRUNED_AT_ONCE:
                return removed

    def _prune_history(self, parameters: dict[str, Any]) -> int:
        removed = 0
        for statement in (sql.prune, sql.prune_past):
            gone = PRUNED_AT_ONCE
            while gone == PRUNED_AT_ONCE:
                with self.store.writing() as db:
                    db.execute(sql.share_marks)
                    marks = self._marks(db)
                    bounds = {
                        "lowest": min((m.position for m in marks), default=FARTHEST_POSITION),
                        "past": parameters["before"] - min((m.hold for m in marks), default=0.0),
                    }
                    gone = db.execute(statement, {**parameters, **bounds}).rowcount
                removed += gone
        return removed

    def _prune_jobs(self, before: float, now: float) -> int:
        removed = 0
        while True:
            with self.store.writing() as db:
                change = Change(self.store, db, now)
                parameters = {"before": before, "now": now, "most": PRUNED_AT_ONCE}
                rows = db.execute(sql.prune_jobs, parameters).fetchall()
                for row in rows:
                    change.tally[row["lane"], State(row["state"]), row["minute"]] -= 1
                    change.deleted.append((row["id"],))
                change.finish()
            self._give_up(
                {place for row in rows if row["body"] and (place := place_of(row["body"]))}
            )
            removed += len(rows)
            if len(rows) < PRUNED_AT_ONCE:
                return removed

    def _give_up(self, places: set[Place]) -> None:
        # In a transaction of its own: the lock of a flow comes before those of its jobs that ended.
        if places:
            with self.store.writing() as db:
                change = Change(self.store, db, self.clock.now())
                change.lost |= places
                change.finish()
            self._tell(change)

    def _drop_days(self, before: float, now: float) -> int:
        """Days that are over as a whole, where nothing is to be kept longer."""
        removed = 0
        with self.store.lend(600.0) as connection:
            db = PostgresDb(connection)
            times = {"before": before, "now": now}
            for row in db.execute(sql.old_days, times).fetchall():
                removed += self._drop_day(connection, row["partition"], times)
        return removed

    def _drop_day(self, connection: Connection, partition: str, times: dict[str, float]) -> int:
        for drop in (True, False):
            try:
                with self.store.transaction(connection, locks=_BRIEFLY) as db:
                    db.execute(sql.share_marks)
                    # Anew, now that no mark is set: a lake that was restored may need it again.
                    old = db.execute(sql.old_days, times).fetchall() if self._marks(db) else None
                    if old is not None and partition not in {each["partition"] for each in old}:
                        return 0
                    row = db.execute(sql.drop_day, (partition, drop)).fetchone()
                    return row["rows"] if row else 0
            except (errors.LockNotAvailable, errors.InsufficientPrivilege):
                continue
            except errors.UndefinedTable:
                return 0  # another prune was quicker
        return 0

    def history(
        self,
        after: int | None = 0,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Event]:
        if job is not None or after is None:
            return super().history(after, limit, job, kind=kind, before=before)
        check_last(after, job, kind, before)
        until = time.monotonic() + _SETTLE_SECONDS
        parameters = {"after": after, "limit": limit}
        while True:
            with self.store.reading() as db:
                rows = db.execute(sql.history, parameters).fetchall()
                safe = [row for row in rows if row["safe"]]
                if len(safe) == len(rows) or time.monotonic() > until:
                    events = [self._event(db, row) for row in safe]
                    break
            time.sleep(_LOOK_SECONDS)
        if events:
            self._on_disk()
        return events

    def _on_disk(self) -> None:
        """What was read must not vanish in a crash: a reader would skip what comes in its place."""
        with self.store.lend() as connection:
            db = PostgresDb(connection)
            written = db.execute(sql.written).fetchone()
            flushed = db.execute(sql.flushed, written).fetchone() if written else None
            if flushed and not flushed["flushed"]:
                db.execute(sql.flush)

    def close(self) -> None:
        self.ear.close()
        self.bell.close()
        self.store.close_connections()
