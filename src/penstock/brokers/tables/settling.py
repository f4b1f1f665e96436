"""Settle: outcomes are applied to claimed jobs, with their history rows, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Generic, TypeVar

import msgspec

from penstock.broker.settlement import as_told, leaves_history, settled
from penstock.broker.views import Note
from penstock.brokers.tables.change import Change, EventRow
from penstock.brokers.tables.db import Db, Row, TableStore, durable
from penstock.brokers.tables.flow_needs import (
    lock_flows,
    place_of,
    spawned_places,
    take_own_nodes,
    wait_for_more,
)
from penstock.brokers.tables.rows import (
    ASKED,
    SETTLED,
    Held,
    blanked,
    job_of,
    minute_of,
    moved,
    row_of,
    text_of,
)
from penstock.enqueue.ids import to_bytes
from penstock.enqueue.secrets import redact
from penstock.flows.state import merged, state_at, state_end
from penstock.job import ENDED, Job, Outcome, State

StoreT = TypeVar("StoreT", bound=TableStore)


class Settlements(Generic[StoreT]):
    """Settle and note: every write is fenced by (job id, attempt).

    `store_spawned` stores what the settled jobs of a change spawned, in its transaction.
    """

    def __init__(self, store: StoreT, store_spawned: Callable[[Change], None]) -> None:
        self.store = store
        self.clock = store.clock
        self._store_spawned = store_spawned

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        if not pairs:
            return []
        with self.store.writing(durable=durable(self.store, (job.queue for job, _ in pairs))) as db:
            change = Change(self.store, db, self.clock.now())
            accepted = self.settle_within(change, pairs)
        if any(outcome.state is State.READY for _, outcome in pairs):
            self.store.notify()
        change.after_commit()
        return accepted

    def settle_within(
        self, change: Change, pairs: Sequence[tuple[Job[Any], Outcome]]
    ) -> list[bool]:
        """Within a transaction; all of it is written when this returns."""
        accepted = self._apply(change, pairs)
        if change.spawned:
            # Lock all flows at once, and before anything is counted: so no node is freed too early.
            places = [place for place in (*change.ends, *spawned_places(change)) if place]
            lock_flows(change.db, change.sql, places)
            waiting = take_own_nodes(change)
            self._store_spawned(change)
            wait_for_more(change, waiting)
        change.finish()
        if change.readied:
            self.store.forget_claimable()
        return accepted

    def _apply(self, change: Change, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        accepted = [False] * len(pairs)
        leases: dict[int, list[int]] = defaultdict(list)
        rows: list[int] = []
        for index, (job, _) in enumerate(pairs):
            if job.lease is not None:
                leases[job.lease[0]].append(index)
            else:
                rows.append(index)
        if rows:
            settled_now = self._settle_rows(change, [pairs[index] for index in rows])
            for index, fresh in zip(rows, settled_now, strict=True):
                accepted[index] = fresh
        # Locked in id order, here and below, so that two settlements cannot deadlock.
        numbers = sorted(leases)
        marks = change.db.each(self.store.sql.lease_marks, [(number,) for number in numbers])
        for number, found in zip(numbers, marks, strict=True):
            if found is None:
                continue
            indexes = [index for index in leases[number] if _same_claim(found, pairs[index][0])]
            settled_now = self._settle_lease(
                change, number, found, [pairs[index] for index in indexes]
            )
            good: list[bytes] = []
            for index, fresh in zip(indexes, settled_now, strict=True):
                accepted[index] = fresh
                job, outcome = pairs[index]
                if fresh and outcome.state is State.SUCCEEDED:
                    good.append(job.body)
                    if outcome.spawned:
                        change.spawn(job, outcome)
            change.members_succeeded(good)
        return accepted

    # The hot path, in one piece: a call more would cost 0.1 us a job.
    def _settle_lease(
        self, change: Change, lease: int, found: Row, pairs: Sequence[tuple[Job[Any], Outcome]]
    ) -> list[bool]:
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
                    job.attempt,
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
            change.ended.append((lease,))
        elif any(accepted):
            change.marked.append((bytes(marks), lease))
            self.blank_secrets(change, [job for job, _ in compress(pairs, accepted)])
        return accepted

    def blank_secrets(self, change: Change, left: Iterable[Job[Any]]) -> None:
        """Blank jobs with secrets that left their lease: it may hold others for hours."""
        places: dict[int, list[int]] = defaultdict(list)
        for job in left:
            if job.lease is not None and b'"secret"' in job.body:
                places[job.lease[0]].append(job.lease[1])
        for lease in sorted(places):
            row = change.db.execute(self.store.sql.lease_bodies, (lease,)).fetchone()
            if row is not None:
                bodies = blanked(row, places[lease])
                change.db.execute(self.store.sql.blank_lease, (bodies, lease))

    def _move_on(self, change: Change, after: Job[Any], lane: int, outcome: Outcome) -> None:
        """A job that leaves its lease without success gets a row, unless it is not to be kept.

        One whose claim is undone goes back into a parcel.
        """
        if outcome.unclaim and after.state is State.READY:
            change.unclaimed[lane].append((to_bytes(after.id), after))
            change.tally[lane, State.READY, 0] += 1
            return
        if after.state in ENDED:
            change.member_ended(after.body, good=False)
        else:
            change.spawn(after, outcome)
        if after.state in ENDED and not outcome.keep:
            return
        run_at = after.enqueued_at if after.run_at is None else after.run_at
        minute = minute_of(run_at, change.now) if after.state is State.READY else 0
        change.rows.append(row_of(after, lane, run_at=run_at, minute=minute))
        change.tally[lane, after.state, minute] += 1

    def _settle_rows(self, change: Change, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        wanted = [(to_bytes(job.id), job.attempt, job.claimed_at or 0.0) for job, _ in pairs]
        in_order = sorted(set(wanted))
        found = change.db.each(self.store.sql.held_row, [_held(*place) for place in in_order])
        rows = dict(zip(in_order, found, strict=True))
        accepted: list[bool] = []
        for place, (_, outcome) in zip(wanted, pairs, strict=True):
            row = rows.pop(place, None)  # of two outcomes for one attempt the second is stale
            accepted.append(row is not None)
            if row is not None:
                self._settle_row(change, row, place[0], outcome)
        return accepted

    def _settle_row(self, change: Change, row: Row, raw: bytes, outcome: Outcome) -> None:
        now, lane = change.now, row["lane"]
        before = job_of(self.store.lane(change.db, lane), row)
        after = settled(before, outcome, now, cancelled=bool(row["cancelled"]))
        change.tally[lane, State.RUNNING, 0] -= 1
        if after.state in ENDED:
            change.member_ended(after.body, good=after.state is State.SUCCEEDED)
            change.free(before, raw, "ended")
        if after.state in {State.SUCCEEDED, State.READY, State.WAITING}:
            change.spawn(before, outcome)
        if after.state is State.SUCCEEDED or (after.state in ENDED and not outcome.keep):
            change.deleted.append((raw,))
        else:
            minute = minute_of(after.run_at or now, now) if after.state is State.READY else 0
            change.moved.append(moved(after, minute))
            change.tally[lane, after.state, minute] += 1
        if leaves_history(outcome, after):
            change.events += _attempt(change, before, after, outcome, (lane, row["worker"]))

    def _holds(self, db: Db, job: Job[Any]) -> int | None:
        """The lane of a job that this attempt still holds."""
        if job.lease is not None:
            lease, offset, _ = job.lease
            found = db.execute(self.store.sql.lease_marks, (lease,)).fetchone()
            if found is None or not _same_claim(found, job) or found["marks"][offset] == SETTLED:
                return None
            return found["lane"]
        row = db.execute(
            self.store.sql.held_row, _held(to_bytes(job.id), job.attempt, job.claimed_at or 0.0)
        ).fetchone()
        return None if row is None else row["lane"]

    def note(self, job: Job[Any], note: Note) -> bool:
        with self.store.writing() as db:
            lane = self._holds(db, job)
            if lane is None:
                return False
            at = note.at or self.clock.now()
            if note.kind == "state":
                return self._merge(db, job, note.value)
            if note.kind != "event":
                db.execute(
                    self.store.sql.note,
                    {
                        "job": to_bytes(job.id),
                        "kind": note.kind,
                        "name": note.name,
                        "at": at,
                        "value": note.value,
                    },
                )
            if note.kind == "event" or (note.kind == "progress" and note.told):
                change = Change(self.store, db, at)
                change.add_event(note.kind, noted(note), job, lane)
                change.finish()
        return True

    def _merge(self, db: Db, job: Job[Any], patch: bytes) -> bool:
        """Merge into the state of the job's flow, and lock that flow."""
        place = place_of(job.body)
        row = None
        if place is not None:
            row = db.execute(self.store.sql.locked_state, (place[0],)).fetchone()
        if place is None or row is None:
            return False
        now, ttl = self.store.clock.now(), row["state_ttl"]
        state = merged(state_at(row["state"], row["state_until"], now), patch)
        values = {"id": place[0], "state": state, "until": state_end(ttl, now)}
        db.execute(self.store.sql.put_state, values)
        return True


def _same_claim(found: Row, job: Job[Any]) -> bool:
    """Whether this lease is the job's own.

    Claims are not durable: after a power cut, the number of a lost lease may be used again.
    """
    return found["worker"] == job.worker and found["claimed_at"] == job.claimed_at


def _held(raw: bytes, attempt: int, claimed_at: float) -> dict[str, Any]:
    """The parameters of `held_row`."""
    return {"id": raw, "attempt": attempt, "claimed_at": claimed_at}


def noted(note: Note) -> bytes:
    """A note as the data of its history event."""
    name = msgspec.json.encode(note.name)
    return b'{"name":' + name + b',"value":' + note.value + b"}"


def _attempt(
    change: Change, before: Job[Any], after: Job[Any], outcome: Outcome, held: tuple[int, str]
) -> EventRow:
    """The history row of an attempt."""
    lane, worker = held
    kept = after.state in ENDED and outcome.keep
    return EventRow(
        "attempt",
        change.now if outcome.ended_at is None else outcome.ended_at,
        job=to_bytes(before.id),
        lane=lane,
        attempt=before.attempt,
        failures=after.failures,
        lapses=after.lapses,
        repeats=after.repeats,
        state=as_told(after).state,
        reason=after.reason,
        key=before.key,
        enqueued_at=before.enqueued_at,
        run_at=before.run_at,
        started_at=before.claimed_at if outcome.started_at is None else outcome.started_at,
        worker=worker,
        tags=text_of(before.tags),
        error=outcome.error,
        body=redact(before.body) if kept else None,
        result=outcome.result if kept else None,
        keep_until=after.keep_until if kept else None,
    )
