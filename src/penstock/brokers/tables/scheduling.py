"""Schedules in a table: a row for each, locked while its slots are decided.

The row is all that decides; what a decision writes beside it, jobs and history, is in the same
transaction. Storing jobs is the store's own business, and is handed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic

import msgspec

from penstock.broker.checks import check_name, check_no_path, legible
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row
from penstock.brokers.tables.job_actions import JobActions
from penstock.brokers.tables.settling import StoreT
from penstock.enqueue.ids import to_bytes
from penstock.schedules.schedule import Decision, Schedule, decided, event_data, holds, replaced

log = logging.getLogger("penstock")
_read = msgspec.json.Decoder(Schedule).decode


class ScheduleRows(Generic[StoreT]):
    """Put, clear and list schedules; decide their slots."""

    def __init__(self, store: StoreT, jobs: JobActions) -> None:
        self.store = store
        self.clock = store.clock
        self._jobs = jobs

    def put(self, schedule: Schedule, author: str = "", reason: str = "") -> Schedule:
        check_name("schedule", schedule.name)
        check_no_path("task", schedule.job.task)
        with self.store.writing() as db:
            now = self.clock.now()
            after = replaced(None, schedule, now)
            # Stored first and looked for then: two that put a new one at once, on a store with many
            # writers, must not both take it for new.
            while not db.execute(self.store.sql.put_schedule, _values(after)).rowcount:
                row = db.execute(self.store.sql.locked_schedule, (schedule.name,)).fetchone()
                if row is not None:
                    before = _schedule(row)
                    after = replaced(before, schedule, now)
                    if after is before:
                        return after
                    db.execute(self.store.sql.change_schedule, _values(after))
                    break
            self._record(Change(self.store, db, now), schedule.name, "put", (author, reason))
        self.store.rules_changed(stop=False)
        return after

    def clear(self, name: str, author: str = "", reason: str = "") -> bool:
        with self.store.writing() as db:
            cleared = db.execute(self.store.sql.clear_schedule, (name,)).rowcount
            if cleared:
                change = Change(self.store, db, self.clock.now())
                self._record(change, name, "removed", (author, reason))
        return bool(cleared)

    def all(self) -> list[Schedule]:
        with self.store.reading() as db:
            return self.within(db)

    def within(self, db: Db) -> list[Schedule]:
        rows = db.execute(self.store.sql.schedules).fetchall()
        found = [schedule for row in rows if (schedule := _schedule(row)) is not None]
        return sorted(found, key=lambda schedule: schedule.name)

    def decide(
        self,
        db: Db,
        schedule: Schedule,
        decisions: Sequence[Decision],
        store_jobs: Callable[[], object],
    ) -> bool:
        """Within a transaction; `store_jobs` stores the jobs of these decisions in it."""
        row = db.execute(self.store.sql.locked_schedule, (schedule.name,)).fetchone()
        stored = None if row is None else _schedule(row)
        if stored is None or not holds(stored, schedule):
            return False
        now = self.clock.now()
        change = Change(self.store, db, now)
        for decision in decisions:
            if decision.cancels is not None:
                author_and_reason = {"author": f"schedule {schedule.name}", "reason": "overlap"}
                data = msgspec.json.encode(author_and_reason)
                for job, lane in self._jobs.cancel(change, [to_bytes(decision.cancels)]).values():
                    change.add_event("cancel", data, job, lane)
                change.finish()
        if any(decision.job is not None for decision in decisions):
            store_jobs()
        for decision in decisions:
            data = msgspec.json.encode(event_data(schedule.name, decision, now))
            lane = None if decision.job is None else decision.job.lane.hash
            change.add_event("schedule", data, decision.job, lane)
        change.finish()
        db.execute(self.store.sql.change_schedule, _values(decided(stored, decisions, now)))
        return True

    def _record(self, change: Change, name: str, says: str, asked: tuple[str, str]) -> None:
        author, reason = map(legible, asked)
        data = event_data(name, Decision(says=says, author=author, reason=reason), change.now)
        change.add_event("schedule", msgspec.json.encode(data), None, None)
        change.finish()


def _values(schedule: Schedule) -> dict[str, Any]:
    return {"name": schedule.name, "declared": msgspec.json.encode(schedule).decode()}


def _schedule(row: Row) -> Schedule | None:
    """The schedule of a row; None if it is damaged, so that the others go on."""
    try:
        return _read(row["declared"])
    except (msgspec.MsgspecError, UnicodeError) as error:
        log.error("a schedule that cannot be read is left out: %s", error)  # noqa: TRY400
        return None
