"""Enqueue: jobs into the store, each once however often it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.checks import (
    check_age,
    check_batch,
    check_joined,
    check_lane,
    check_whole_flow,
)
from penstock.broker.values import Batch, Enqueued
from penstock.broker.views import QUEUED
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, durable
from penstock.brokers.tables.enqueue_packing import (
    names_of,
    new_parts,
    packed,
    searched_fields,
)
from penstock.brokers.tables.flow_needs import add_needs, flow_rows, found_keys, last_of, queued
from penstock.brokers.tables.replacing import take_place
from penstock.brokers.tables.rows import (
    PackedRow,
    indexed,
    lengths_of,
    minute_of,
    row_of,
    run_of,
    text_of,
)
from penstock.enqueue.ids import from_bytes, time_of, to_bytes
from penstock.flows.flow import Flow
from penstock.job import Job, Lane, Parcel, State


class SqliteIntake:
    """Enqueue; and how settlements, schedules and writes in parts store jobs."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = store.clock

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        parcels, singles = packed(jobs, flow)
        if connection is None:
            queues = (job.lane.queue for job in (*parcels, *singles))
            with self.store.writing(durable=durable(self.store, queues)) as db:
                change = Change(self.store, db, self.clock.now())
                answer = self.enqueue_within(change, parcels, singles, batch, flow)
            self.store.notify()
            self._remember_lanes(parcels)
        else:
            check_joined(singles)
            with self.store.joining(connection) as db:
                change = Change(self.store, db, self.clock.now())
                answer = self.enqueue_within(change, parcels, singles, batch, flow)
        return answer

    def enqueue_within(
        self,
        change: Change,
        parcels: Sequence[Parcel],
        singles: Sequence[Job[Any]],
        batch: Batch | None = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        """Within a transaction; all of it is written when this returns."""
        db = change.db
        self.check_ages(db, (*parcels, *singles), change.now)
        if flow is not None and (known := self._sent_before(db, parcels, singles)):
            check_whole_flow(flow.id, flow.jobs, known)
            return Enqueued(frozenset(known))
        rows = sum(len(parcel.bodies) for parcel in parcels) + len(singles)
        stored = self._count_batch(change, batch, rows) if batch else 0
        known, standing = self.take_in(change, parcels, singles)
        if flow is not None:
            self._enqueue_flow(change, flow)
        change.finish()
        return Enqueued(frozenset(known), standing, stored)

    def take_in(
        self, change: Change, parcels: Sequence[Parcel], singles: Sequence[Job[Any]]
    ) -> tuple[set[str], dict[str, str]]:
        """Store these; returns the ids stored before, and who holds the unique keys of others."""
        lanes = self.put_lanes(change.db, searched_fields(parcels, singles))
        known = self._enqueue_parcels(change, parcels, lanes)
        standing = self._enqueue_singles(change, singles, lanes, known) if singles else {}
        return known, standing

    def store_spawned(self, change: Change) -> None:
        for place, outcome in change.spawned:
            # Checked already, when the task spawned them.
            parcels, singles = packed(outcome.spawned, outcome.flow, check=False)
            self.take_in(change, parcels, singles)
            change.woken.update(job.lane.hash for job in (*parcels, *singles))
            if outcome.flow is not None:
                self._enqueue_flow(change, outcome.flow)
                if place is not None:
                    self._add_needs(change, place[1], last_of(outcome.flow))
        change.spawned.clear()

    def _add_needs(self, change: Change, parent: bytes, needs: Sequence[bytes]) -> None:
        """Nodes that need the parent, and still wait, need these as well."""
        for after in change.db.execute(sql.waits_for, {"need": parent}).fetchall():
            add_needs(change, after["id"], needs)

    def _remember_lanes(self, parcels: Sequence[Parcel]) -> None:
        """Committed by ourselves, so known from now on: nothing is indexed in a parcel's lane."""
        for parcel in parcels:
            number = parcel.lane.hash
            if self.store.searched.get(number) != "":
                self.store.lanes[number] = parcel.lane
                self.store.searched[number] = ""

    def put_lanes(self, db: Db, fields: Mapping[Lane, frozenset[str]]) -> dict[Lane, int]:
        """Store new lanes, each with the argument fields that all of its jobs have indexed."""
        numbers: dict[Lane, int] = {}
        for lane, searched in fields.items():
            check_lane(lane)
            number = numbers[lane] = lane.hash
            # As most: it is stored, and no field is indexed.
            if number in self.store.lanes and not self.store.searched[number]:
                continue
            row = db.execute(sql.lane_search, (number,)).fetchone()
            known = None if row is None else names_of(row["search"])
            every = searched if known is None else known & searched
            if every != known:
                names = (lane.app, lane.queue, lane.task, lane.version, lane.priority)
                tags, indexed = ",".join(lane.runs_on), ",".join(sorted(every))
                db.execute(sql.put_lane, (number, *names, tags, indexed))
        return numbers

    def check_ages(self, db: Db, jobs: Iterable[Job[Any] | Parcel], now: float) -> None:
        """Refuse ids that are older than the store remembers, or from the future."""
        oldest = max(now - self.store.traits.retention, pruned_before(db))
        for job in jobs:
            check_age(job.id, now, oldest)

    def _count_batch(self, change: Change, batch: Batch, rows: int) -> int:
        row = change.db.execute(sql.batch, {"id": batch.id}).fetchone()
        stored = row["rows"] if row else 0
        if not rows:
            return stored
        check_batch(batch.id, batch.count, stored)
        parameters = {"id": batch.id, "rows": stored + rows, "at": change.now}
        change.db.execute(sql.put_batch, parameters)
        return stored + rows

    def _enqueue_parcels(
        self, change: Change, parcels: Sequence[Parcel], lanes: dict[Lane, int]
    ) -> set[str]:
        known: set[str] = set()
        rows: list[PackedRow] = []
        for parcel in parcels:
            first, lane = to_bytes(parcel.id), lanes[parcel.lane]
            for start, bodies in self._new_parts(change.db, first, parcel.bodies, known):
                change.db.execute(sql.send, (start, len(bodies), None))
                packed = b"".join(bodies)
                rows.append((start, lane, len(bodies), lengths_of(bodies), packed, 0, 0))
                change.tally[lane, State.READY, 0] += len(bodies)
        change.db.executemany(sql.enqueue_parcel, rows)
        return known

    def _was_sent(self, db: Db, raw: bytes) -> bool:
        tail = int.from_bytes(raw[14:], "big")
        before = db.execute(sql.sent_before, (run_of(raw), raw)).fetchone()
        if before is None:
            return False
        return tail < int.from_bytes(before["id"][14:], "big") + before["jobs"]

    def _new_parts(
        self, db: Db, first: bytes, bodies: Sequence[bytes], known: set[str]
    ) -> list[tuple[bytes, Sequence[bytes]]]:
        """The parts of a parcel that were not sent before: mostly one, all of it."""
        last = int.from_bytes(first[14:], "big") + len(bodies) - 1
        span = (run_of(first), first[:14] + last.to_bytes(2, "big"))
        before = db.execute(sql.sent_between, span).fetchall()
        return new_parts(first, bodies, [(row["id"], row["jobs"]) for row in before], known)

    def _sent_before(
        self, db: Db, parcels: Sequence[Parcel], singles: Sequence[Job[Any]]
    ) -> set[str]:
        known: set[str] = set()
        for parcel in parcels:
            self._new_parts(db, to_bytes(parcel.id), parcel.bodies, known)
        known.update(job.id for job in singles if self._was_sent(db, to_bytes(job.id)))
        return known

    def _enqueue_flow(self, change: Change, flow: Flow) -> None:
        db, raw = change.db, to_bytes(flow.id)
        if db.execute(sql.lock_flow, (raw,)).fetchone() is None:
            db.executemany(sql.put_found, [(key, raw) for key in found_keys(flow)])
            change.flow_event(raw, queued(flow))
        db.execute(
            sql.put_flow,
            {
                "id": raw,
                "name": flow.name,
                "find": text_of(flow.find),
                "state": flow.state,
                "state_ttl": flow.state_ttl,
                "now": change.now,
                "jobs": flow.jobs,
            },
        )
        place = db.execute(sql.next_node, (raw,)).fetchone()["place"]
        nodes, needs, members = flow_rows(flow, place)
        db.executemany(sql.put_node, nodes)
        db.executemany(sql.put_need, needs)
        db.executemany(sql.put_member, members)

    def _enqueue_singles(
        self, change: Change, singles: Sequence[Job[Any]], lanes: dict[Lane, int], known: set[str]
    ) -> dict[str, str]:
        db, now = change.db, change.now
        standing: dict[str, str] = {}
        for offered in singles:
            job, raw = offered, to_bytes(offered.id)
            if self._was_sent(db, raw):
                known.add(job.id)
                continue
            if job.unique is not None:
                parameters = {"key": job.unique.key, "now": now}
                holder = db.execute(sql.unique_holder, parameters).fetchone()
                if holder is not None:
                    replacing = job.unique.replace and take_place(change, job, holder["job"])
                    if not replacing:
                        standing[job.id] = from_bytes(holder["job"])
                        continue
                    job = replacing
                change.take_unique(job, raw)
            made_at, lane = time_of(job.id), lanes[job.lane]
            enqueued_at = now if made_at is None else made_at
            # The id may be a little ahead of the store's clock: "at once" still means now.
            run_at = min(enqueued_at, now) if job.run_at is None else job.run_at
            minute = 0 if job.state is State.WAITING else minute_of(run_at, now)
            db.execute(sql.send, (raw, 1, now if made_at is None else None))
            places = {"run_at": run_at, "minute": minute, "enqueued_at": enqueued_at}
            db.execute(sql.enqueue, row_of(job, lane, **places))
            self._put_tags(db, job, raw)
            change.tally[lane, job.state, minute] += 1
            if job.detached:
                queued_job = msgspec.structs.replace(job, run_at=run_at, enqueued_at=enqueued_at)
                change.add_event("event", QUEUED, queued_job, lane)
        return standing

    def _put_tags(self, db: Db, job: Job[Any], raw: bytes) -> None:
        names = [(name, indexed(value), raw) for name, value in job.tags.items()]
        names += [(f"arg.{name}", indexed(value), raw) for name, value in job.search.items()]
        if names:
            db.executemany(sql.put_tag, names)


def pruned_before(db: Db) -> float:
    """The latest `before` of a prune: ids from earlier are no longer remembered."""
    row = db.execute(sql.meta_value, ("pruned_before",)).fetchone()
    return float(row["value"]) if row else 0.0
