"""Settle: attempts end, jobs move on, and the history says so, in one transaction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.broker import Note
from penstock.brokers.sqlite.hand_over import HandOver, Tally, write_tally
from penstock.brokers.sqlite.rows import (
    ASKED,
    SETTLED,
    Held,
    job_of,
    minute_of,
    row_of,
    text_of,
)
from penstock.brokers.sqlite.statements import many, sql
from penstock.brokers.sqlite.store import Db
from penstock.ids import to_bytes
from penstock.job import ENDED, Job, Outcome, State
from penstock.redact import redact
from penstock.settlement import leaves_history, settled

# Parameters of event.sql, in its order.
EventRow = tuple[Any, ...]
_EVENT = "(" + ", ".join("?" * 16) + ")"
# Parameters of succeed.sql: the hot path binds half as many.
_SUCCEED = "('attempt', ?, ?, ?, 1, 'succeeded', ?, ?, ?, ?, ?)"
_CHUNKS = (512, 64, 8, 1)


def write_events(db: Db, rows: Sequence[EventRow]) -> None:
    """Append history rows."""
    _write(db, sql.event, _EVENT, [value for row in rows for value in row])


def _write(db: Db, statement: str, row: str, values: list[Any]) -> None:
    # Many rows to a statement: one statement is one step of SQLite, so that the interpreter is let
    # go of once and not once a row, which matters when hands are busy (each return may wait 5 ms).
    width = row.count("?")
    start, left = 0, len(values) // width
    for size in _CHUNKS:
        while left >= size:
            db.execute(many(statement, row, size), values[start : start + size * width])
            start, left = start + size * width, left - size


def small_event(kind: str, at: float, job: Job[Any] | None, lane: int | None, data: bytes) -> EventRow:
    """One of the rarer events: who asked for what, how far a job got."""
    if job is None:
        return (kind, at, *(None,) * 13, data)
    return (
        *(kind, at, to_bytes(job.id), lane, job.attempt, job.state, job.reason, job.enqueued_at),
        *(job.run_at, None, job.worker, text_of(job.tags), None, None, None, data),
    )


class Settling(HandOver):
    """Settle and note: every write is fenced by (job id, attempt)."""

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        if not pairs:
            return []
        with self.store.writing() as db:
            accepted = self._settle(db, pairs)
        if any(outcome.state is State.READY for _, outcome in pairs):
            self.offers.forget()
            self.bell.ring()
        return accepted

    def _settle(self, db: Db, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        now = self.store.clock.now()
        accepted = [False] * len(pairs)
        tally: Tally = Counter()
        rows: list[EventRow] = []
        leases: dict[int, list[int]] = defaultdict(list)
        for index, (job, outcome) in enumerate(pairs):
            if job.lease is not None:
                leases[job.lease[0]].append(index)
            else:
                accepted[index] = self._settle_row(db, job, outcome, now, tally, rows)
        for lease, indexes in leases.items():
            self._settle_lease(db, lease, indexes, pairs, now, tally, rows, accepted)
        write_events(db, rows)
        write_tally(db, tally)
        return accepted

    def _settle_lease(
        self,
        db: Db,
        lease: int,
        indexes: Sequence[int],
        pairs: Sequence[tuple[Job[Any], Outcome]],
        now: float,
        tally: Tally,
        rows: list[EventRow],
        accepted: list[bool],
    ) -> None:
        found = db.execute(sql.lease_marks, (lease,)).fetchone()
        if found is None:
            return
        marks, worker, lane = bytearray(found["marks"]), found["worker"], found["lane"]
        ended = 0
        done: list[Any] = []
        for index in indexes:
            job, outcome = pairs[index]
            held: Held = job.lease
            _, offset, raw_id = held
            mark = marks[offset]
            if mark == SETTLED:
                continue
            marks[offset] = SETTLED
            accepted[index] = True
            ended += 1
            if outcome.state is State.SUCCEEDED:
                body = result = None
                if outcome.keep:
                    body, result = redact(job.body), outcome.result
                done += (
                    now if outcome.ended_at is None else outcome.ended_at,
                    raw_id,
                    lane,
                    job.enqueued_at,
                    outcome.started_at,
                    worker,
                    body,
                    result,
                )
            else:
                after = settled(job, outcome, now, cancelled=mark == ASKED)
                self._move_on(db, after, lane, outcome, now, tally)
                if leaves_history(outcome, after):
                    rows.append(_attempt(job, after, outcome, lane, worker, now))
        _write(db, sql.succeed, _SUCCEED, done)
        tally[lane, State.RUNNING, 0] -= ended
        if marks.count(SETTLED) == len(marks):
            db.execute(sql.end_lease, (lease,))
        elif ended:
            db.execute(sql.mark_lease, (bytes(marks), lease))

    def _move_on(
        self, db: Db, after: Job[Any], lane: int, outcome: Outcome, now: float, tally: Tally
    ) -> None:
        """A job that leaves its lease without success gets a row, unless it is not to be kept."""
        if after.state in ENDED and not outcome.keep:
            return
        run_at = after.enqueued_at if after.run_at is None else after.run_at
        minute = minute_of(run_at, now) if after.state is State.READY else 0
        db.execute(sql.enqueue, row_of(after, lane, run_at=run_at, minute=minute))
        tally[lane, after.state, minute] += 1

    def _settle_row(
        self,
        db: Db,
        job: Job[Any],
        outcome: Outcome,
        now: float,
        tally: Tally,
        rows: list[EventRow],
    ) -> bool:
        raw = to_bytes(job.id)
        row = db.execute(sql.held_row, {"id": raw, "attempt": job.attempt}).fetchone()
        if row is None:
            return False
        lane = row["lane"]
        before = job_of(self.store.lane(db, lane), row)
        after = settled(before, outcome, now, cancelled=bool(row["cancelled"]))
        tally[lane, State.RUNNING, 0] -= 1
        if after.state in ENDED:
            self._free_unique(db, before, raw, "ended")
        if after.state is State.SUCCEEDED or (after.state in ENDED and not outcome.keep):
            db.execute(sql.delete, (raw,))
        else:
            minute = minute_of(after.run_at or now, now) if after.state is State.READY else 0
            db.execute(
                sql.settle,
                {
                    "id": raw,
                    "attempt": after.attempt,
                    "state": after.state,
                    "run_at": after.run_at,
                    "minute": minute,
                    "failures": after.failures,
                    "lapses": after.lapses,
                    "repeats": after.repeats,
                    "ended_at": after.ended_at,
                    "reason": after.reason,
                    "error": after.error,
                },
            )
            tally[lane, after.state, minute] += 1
        if leaves_history(outcome, after):
            rows.append(_attempt(before, after, outcome, lane, row["worker"], now))
        return True

    def _free_unique(self, db: Db, job: Job[Any], raw: bytes, until: str) -> None:
        if job.unique is not None:
            db.execute(sql.free_unique, {"key": job.unique.key, "job": raw, "until": until})

    def _holds(self, db: Db, job: Job[Any]) -> int | None:
        """The lane of a job that this attempt still holds."""
        if job.lease is not None:
            lease, offset, _ = job.lease
            found = db.execute(sql.lease_marks, (lease,)).fetchone()
            if found is None or found["marks"][offset] == SETTLED:
                return None
            return found["lane"]
        row = db.execute(
            sql.held_row, {"id": to_bytes(job.id), "attempt": job.attempt}
        ).fetchone()
        return None if row is None else row["lane"]

    def note(self, job: Job[Any], note: Note) -> bool:
        with self.store.writing() as db:
            lane = self._holds(db, job)
            if lane is None:
                return False
            at = note.at or self.store.clock.now()
            if note.kind != "event":
                db.execute(
                    sql.note,
                    {
                        "job": to_bytes(job.id),
                        "kind": note.kind,
                        "name": note.name,
                        "at": at,
                        "value": note.value,
                    },
                )
            if note.kind in {"event", "progress"}:
                write_events(db, [small_event(note.kind, at, job, lane, noted(note))])
        return True


def noted(note: Note) -> bytes:
    """A note as the data of its history event."""
    name = msgspec.json.encode(note.name)
    return b'{"name":' + name + b',"value":' + note.value + b"}"


def _attempt(
    before: Job[Any], after: Job[Any], outcome: Outcome, lane: int, worker: str, now: float
) -> EventRow:
    kept = after.state in ENDED and outcome.keep
    return (
        "attempt",
        now if outcome.ended_at is None else outcome.ended_at,
        to_bytes(before.id),
        lane,
        before.attempt,
        after.state,
        after.reason,
        before.enqueued_at,
        before.run_at,
        before.claimed_at if outcome.started_at is None else outcome.started_at,
        worker,
        text_of(before.tags),
        outcome.error,
        redact(before.body) if kept else None,
        outcome.result if kept else None,
        None,
    )
