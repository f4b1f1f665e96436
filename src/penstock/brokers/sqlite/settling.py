"""Settle: attempts end, jobs move on, and the history says so, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.broker import Note
from penstock.brokers.sqlite.change import Change
from penstock.brokers.sqlite.hand_over import HandOver
from penstock.brokers.sqlite.rows import (
    ASKED,
    SETTLED,
    Held,
    job_of,
    minute_of,
    row_of,
    text_of,
)
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import Db
from penstock.ids import to_bytes
from penstock.job import ENDED, Job, Outcome, State
from penstock.redact import redact
from penstock.settlement import leaves_history, settled


class Settling(HandOver):
    """Settle and note: every write is fenced by (job id, attempt)."""

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        if not pairs:
            return []
        with self.store.writing() as db:
            accepted = self._settle(db, pairs)
        if any(outcome.state is State.READY for _, outcome in pairs):
            self.bell.ring()
        return accepted

    def _settle(self, db: Db, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        change = Change(db, self.clock.now())
        accepted = [False] * len(pairs)
        leases: dict[int, list[int]] = defaultdict(list)
        for index, (job, outcome) in enumerate(pairs):
            if job.lease is not None:
                leases[job.lease[0]].append(index)
            else:
                accepted[index] = self._settle_row(change, job, outcome)
        for lease, indexes in leases.items():
            settled_now = self._settle_lease(change, lease, [pairs[index] for index in indexes])
            for index, fresh in zip(indexes, settled_now, strict=False):
                accepted[index] = fresh
        if any(jobs > 0 and state is State.READY for (_, state, _), jobs in change.tally.items()):
            self.offers.forget()
        change.finish()
        return accepted

    def _settle_lease(  # noqa: C901  the hot path: a call more would cost 0.1 us a job
        self, change: Change, lease: int, pairs: Sequence[tuple[Job[Any], Outcome]]
    ) -> list[bool]:
        found = change.db.execute(sql.lease_marks, (lease,)).fetchone()
        if found is None:
            return []
        marks, worker, lane = bytearray(found["marks"]), found["worker"], found["lane"]
        now, successes = change.now, change.successes
        accepted: list[bool] = []
        for job, outcome in pairs:
            held: Held = job.lease
            _, offset, raw_id = held
            mark = marks[offset]
            accepted.append(mark != SETTLED)
            if mark == SETTLED:
                continue
            marks[offset] = SETTLED
            if outcome.state is State.SUCCEEDED:
                body = result = keep_until = None
                ended_at = now if outcome.ended_at is None else outcome.ended_at
                if outcome.keep:
                    body, result = job.body, outcome.result
                    if b'"secret"' in body:
                        body = redact(body)
                    if outcome.keep_for is not None:
                        keep_until = ended_at + outcome.keep_for
                successes += (
                    ended_at,
                    raw_id,
                    lane,
                    job.enqueued_at,
                    outcome.started_at,
                    worker,
                    body,
                    result,
                    keep_until,
                )
            else:
                after = settled(job, outcome, now, cancelled=mark == ASKED)
                self._move_on(change, after, lane, outcome)
                if leaves_history(outcome, after):
                    change.events += _attempt(change, job, after, outcome, (lane, worker))
        change.tally[lane, State.RUNNING, 0] -= sum(accepted)
        if marks.count(SETTLED) == len(marks):
            change.db.execute(sql.end_lease, (lease,))
        elif any(accepted):
            change.db.execute(sql.mark_lease, (bytes(marks), lease))
        return accepted

    def _move_on(self, change: Change, after: Job[Any], lane: int, outcome: Outcome) -> None:
        """A job that leaves its lease without success gets a row, unless it is not to be kept."""
        if after.state in ENDED and not outcome.keep:
            return
        run_at = after.enqueued_at if after.run_at is None else after.run_at
        minute = minute_of(run_at, change.now) if after.state is State.READY else 0
        change.db.execute(sql.enqueue, row_of(after, lane, run_at=run_at, minute=minute))
        change.tally[lane, after.state, minute] += 1

    def _settle_row(self, change: Change, job: Job[Any], outcome: Outcome) -> bool:
        db, now, raw = change.db, change.now, to_bytes(job.id)
        row = db.execute(sql.held_row, {"id": raw, "attempt": job.attempt}).fetchone()
        if row is None:
            return False
        lane = row["lane"]
        before = job_of(self.store.lane(db, lane), row)
        after = settled(before, outcome, now, cancelled=bool(row["cancelled"]))
        change.tally[lane, State.RUNNING, 0] -= 1
        if after.state in ENDED:
            self._free_unique(db, before, raw, "ended")
        if after.state is State.SUCCEEDED or (after.state in ENDED and not outcome.keep):
            db.execute(sql.delete, (raw,))
        else:
            minute = minute_of(after.run_at or now, now) if after.state is State.READY else 0
            db.execute(sql.settle, moved(after, minute))
            change.tally[lane, after.state, minute] += 1
        if leaves_history(outcome, after):
            change.events += _attempt(change, before, after, outcome, (lane, row["worker"]))
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
        row = db.execute(sql.held_row, {"id": to_bytes(job.id), "attempt": job.attempt}).fetchone()
        return None if row is None else row["lane"]

    def note(self, job: Job[Any], note: Note) -> bool:
        with self.store.writing() as db:
            lane = self._holds(db, job)
            if lane is None:
                return False
            at = note.at or self.clock.now()
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
                change = Change(db, at)
                change.happened(note.kind, noted(note), job, lane)
                change.finish()
        return True


def noted(note: Note) -> bytes:
    """A note as the data of its history event."""
    name = msgspec.json.encode(note.name)
    return b'{"name":' + name + b',"value":' + note.value + b"}"


def moved(after: Job[Any], minute: int) -> dict[str, Any]:
    """The parameters of settle.sql."""
    return {
        "id": to_bytes(after.id),
        "attempt": after.attempt,
        "state": after.state,
        "run_at": after.run_at,
        "minute": minute,
        "failures": after.failures,
        "lapses": after.lapses,
        "repeats": after.repeats,
        "ended_at": after.ended_at,
        "keep_until": after.keep_until,
        "reason": after.reason,
        "error": after.error,
    }


def _attempt(
    change: Change, before: Job[Any], after: Job[Any], outcome: Outcome, held: tuple[int, str]
) -> tuple[Any, ...]:
    """The history row of an attempt, as event.sql takes it."""
    lane, worker = held
    kept = after.state in ENDED and outcome.keep
    return (
        "attempt",
        change.now if outcome.ended_at is None else outcome.ended_at,
        to_bytes(before.id),
        lane,
        before.attempt,
        after.failures,
        after.lapses,
        after.repeats,
        after.state,
        after.reason,
        before.key,
        before.enqueued_at,
        before.run_at,
        before.claimed_at if outcome.started_at is None else outcome.started_at,
        worker,
        text_of(before.tags),
        outcome.error,
        redact(before.body) if kept else None,
        outcome.result if kept else None,
        None,
        after.keep_until if kept else None,
    )
