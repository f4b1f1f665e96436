"""Enqueue: each job is stored once, however often it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec
import psycopg
from psycopg import errors

from penstock.broker.checks import (
    check_age,
    check_batch,
    check_joined,
    check_lane,
    check_whole_flow,
)
from penstock.broker.move import planned_epoch
from penstock.broker.values import Batch, Enqueued
from penstock.brokers.postgres.binary_arrays import bytea_array, int4_array, int8_array, uuid_array
from penstock.brokers.postgres.caller_transaction import NotifyAfterCommit, PostgresJoin
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.enqueue_values import NewJobs, flow_values, job_values, span_of
from penstock.brokers.postgres.errors import AnswerLost
from penstock.brokers.postgres.function_calls import (
    BOOL,
    BYTEA,
    BYTEA_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    UUID,
    UUID_ARRAY,
    Call,
    boolean,
    call,
    int4,
    int8,
)
from penstock.brokers.postgres.retrying import retried, sent_again
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import durable
from penstock.brokers.tables.enqueue_packing import (
    new_parts,
    packed,
    searched_fields,
)
from penstock.brokers.tables.replacing import take_place
from penstock.brokers.tables.rows import lengths_of
from penstock.enqueue.caller_connection import caller_of, hold
from penstock.enqueue.ids import to_bytes
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.flows.flow import Flow
from penstock.job import Job, Lane, Parcel

_ONE = Call("one", sql.send_one, (UUID, INT8, BYTEA, BYTEA))
_PARCEL = Call("parcel", sql.send_parcel, (UUID, UUID, UUID, INT8, INT4, BYTEA, BYTEA, BOOL))
_PARCELS = Call(
    "parcels",
    sql.send_parcels,
    (UUID_ARRAY, UUID_ARRAY, UUID_ARRAY, INT8_ARRAY, INT4_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BOOL),
)
_EMPTY_ARRAY = 12  # bytes
LOCK_SECONDS = 2.0  # short: others wait behind the locks that a waiting enqueue holds
_TRIES = 3  # of two senders of the same id, the second finds it stored when it tries again
_Unsent = Sequence[tuple[bytes, Lane, Sequence[bytes]]]  # first id, lane and bodies of parcels


class PostgresIntake:
    """Enqueue; also stores the jobs of settlements, schedules and staged writes."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.clock = store.clock
        self._notifier = NotifyAfterCommit(store)
        self.close = self._notifier.close

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        if connection is not None:
            caller = caller_of(connection)
            join = self.join(jobs, batch, flow)
            join.prepare()
            return hold(join.asks(caller), caller)
        new_jobs, now = self.pack(jobs, flow)
        send = partial(self._enqueue, new_jobs, batch, now)
        try:
            # A batch counts its rows, so it is refused when it is sent a second time.
            return sent_again(send) if batch is None else send()
        except AnswerLost as error:
            raise UnknownOutcome(
                f"{error}; whether the jobs are stored is not known. Sending them again is safe: "
                "each is stored once",
                [*new_jobs.parcels, *new_jobs.singles],
            ) from error.__cause__

    def pack(self, jobs: Sequence[Job[Any] | Parcel], flow: Flow | None) -> tuple[NewJobs, float]:
        """Pack plain jobs into parcels and refuse ids that are too old; with the time now."""
        new_jobs = NewJobs(*packed(jobs, flow), flow)
        now = self.clock.now()
        for job in (*new_jobs.parcels, *new_jobs.singles):
            check_age(job.id, now, now - self.store.traits.retention)
        return new_jobs, now

    def join(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        batch: Batch | None = None,
        flow: Flow | None = None,
    ) -> PostgresJoin:
        """These jobs as a value that can be stored on a connection of the caller's."""
        new_jobs, now = self.pack(jobs, flow)
        check_joined(new_jobs.singles)
        return PostgresJoin(
            self.store,
            new_jobs,
            now,
            prepare=partial(self.put_lanes, new_jobs) if self._new_lanes(new_jobs) else None,
            notifier=self._notifier,
            whole=frozenset(job.id for job in jobs if isinstance(job, Parcel)),
            batch=batch,
        )

    @retried
    def _enqueue(self, new_jobs: NewJobs, batch: Batch | None, now: float) -> Enqueued:
        lanes = self.put_lanes(new_jobs)
        with self.store.connection() as connection:
            try:
                at_once = new_jobs.parcels and not new_jobs.singles and not planned_epoch()
                if batch is new_jobs.flow is None and at_once:
                    known = self._enqueue_parcels(connection, new_jobs.parcels)
                    answer = Enqueued(frozenset(known))
                else:
                    with self.store.transaction(
                        connection,
                        durable=durable(self.store, (lane.queue for lane in new_jobs.lanes())),
                        lock_seconds=LOCK_SECONDS,
                    ) as db:
                        answer = self._enqueue_all(db, new_jobs, batch, now)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if connection.closed:
                    raise AnswerLost(
                        f"the store {self.store.where} did not answer: {str(error).strip()}"
                    ) from error
                raise
            self.store.forget_claimable(lanes)
            self.store.notify_on(connection, lanes)
        return answer

    def _enqueue_all(
        self, db: PostgresDb, new_jobs: NewJobs, batch: Batch | None, now: float
    ) -> Enqueued:
        flow = new_jobs.flow
        if flow is not None:
            db.execute("savepoint flow")
            # The flow's row first: that waits for whoever sends the same flow at this moment.
            values = msgspec.json.encode(flow_values(flow)).decode()
            row = db.execute(sql.send_flow, (values, now)).fetchone()
            if row is None or not row["new"]:
                return Enqueued(new_jobs.ids())
        stored = self._count_batch(db, batch, new_jobs.rows, now) if batch else 0
        known: set[str] = set()
        if new_jobs.parcels:
            db.execute("savepoint parcels")
            known = self._enqueue_parcels(db.connection, new_jobs.parcels, within=True)
        standing: dict[str, str] = {}
        if new_jobs.singles:
            singles = new_jobs.singles
            if any(job.unique is not None and job.unique.replace for job in singles):
                answer = self._enqueue_replacing(db, singles, now)
            else:
                answer = enqueue_singles(db, singles, now)
            known.update(answer["known"])
            standing = answer["standing"]
        if flow is not None and known:
            check_whole_flow(flow.id, flow.jobs, known)
            db.execute("rollback to flow")  # the flow was pruned, but its jobs are remembered
            return Enqueued(frozenset(known))
        return Enqueued(frozenset(known), standing, stored)

    def _enqueue_replacing(
        self, db: PostgresDb, singles: Sequence[Job[Any]], now: float
    ) -> dict[str, Any]:
        """Store jobs of which some take the place of the holders of their unique keys.

        Of several under one key in a call each takes the place of the one before.
        """
        rounds: list[list[Job[Any]]] = []
        seen: Counter[str | None] = Counter()
        for job in singles:
            key = job.unique.key if job.unique is not None else None
            place = seen[key] if key is not None else 0
            seen[key] += 1
            rounds += [[]] * (place == len(rounds))
            rounds[place] = [*rounds[place], job]
        for key in sorted(key for key in seen if key is not None):
            db.execute(sql.lock_unique, {"key": key})
        known: list[str] = []
        standing: dict[str, str] = {}
        for part in rounds:
            change = Change(self.store, db, now)
            answer = enqueue_singles(db, [self._in_place(change, job) for job in part], now)
            change.finish()
            known += answer["known"]
            standing |= answer["standing"]
        return {"known": known, "standing": standing}

    def _in_place(self, change: Change, job: Job[Any]) -> Job[Any]:
        if job.unique is None or not job.unique.replace:
            return job
        db, raw = change.db, to_bytes(job.id)
        _, run, last = span_of(raw, 1)
        sent = db.execute(sql.sent_between, (run, last)).fetchall()
        known: set[str] = set()
        new_parts(raw, [b""], [(row["id"], row["jobs"]) for row in sent], known)
        holder = db.execute(
            sql.unique_holder, {"key": job.unique.key, "now": change.now}
        ).fetchone()
        if known or holder is None:
            return job
        return take_place(change, job, holder["job"]) or job

    def store_spawned(self, change: Change) -> None:
        """Store what settled jobs spawned, in the transaction of the settlement."""
        db = cast("PostgresDb", change.db)
        new_jobs = NewJobs([], [])
        flows: list[tuple[str, bytes | None, float]] = []
        for node, outcome in change.spawned:
            parcels, singles = packed(outcome.spawned, outcome.flow, check=False)
            new_jobs.parcels.extend(parcels)
            new_jobs.singles.extend(singles)
            if outcome.flow is not None:
                values = msgspec.json.encode(flow_values(outcome.flow)).decode()
                flows.append((values, None if node is None else node[1], change.now))
        change.spawned.clear()
        change.woken.update(self.put_lanes(new_jobs))
        self._enqueue_all(db, new_jobs, None, change.now)
        db.every(sql.spawn_flow, flows)

    def _count_batch(self, db: PostgresDb, batch: Batch, rows: int, now: float) -> int:
        row = db.execute(sql.batch, {"id": batch.id, "at": now}).fetchone()
        stored = row["rows"] if row else 0
        if not rows:
            return stored
        check_batch(batch.id, batch.count, stored)
        db.execute(sql.put_batch, {"id": batch.id, "rows": stored + rows, "at": now})
        return stored + rows

    def put_lanes(self, new_jobs: NewJobs) -> list[int]:
        """Store lanes that are new, in a transaction of their own; the hashes of all lanes.

        Stored in the transaction of the jobs, a new lane would block others until that commits.
        """
        new = self._new_lanes(new_jobs)
        lanes = new_jobs.lanes()
        if new:
            with self.store.writing() as db:
                db.executemany(sql.put_lane, sorted(new, key=lambda lane: lane["hash"]))
            with self.store.writing() as db:
                for lane in lanes:
                    self.store.lanes.pop(lane.hash, None)
                    self.store.lane(db, lane.hash)
        return [lane.hash for lane in lanes]

    def _new_lanes(self, new_jobs: NewJobs) -> list[dict[str, Any]]:
        fields = searched_fields(new_jobs.parcels, new_jobs.singles)
        new: list[dict[str, Any]] = []
        for lane, searched in fields.items():
            check_lane(lane)
            number, search = lane.hash, ",".join(sorted(searched))
            known = self.store.searched.get(number)
            if known is not None and (not known or known == search):
                continue  # the usual case: the lane is stored, with the same indexed fields
            new.append(
                {
                    "hash": number,
                    "app": lane.app,
                    "queue": lane.queue,
                    "task": lane.task,
                    "version": lane.version,
                    "priority": lane.priority,
                    "runs_on": ",".join(lane.runs_on),
                    "search": search,
                }
            )
        return new

    def _enqueue_parcels(
        self, connection: Connection, parcels: Sequence[Parcel], *, within: bool = False
    ) -> set[str]:
        """Store parcels, without the ids that were sent before: those are returned."""
        known: set[str] = set()
        left: _Unsent = [(to_bytes(parcel.id), parcel.lane, parcel.bodies) for parcel in parcels]
        tries = _TRIES
        while tries:
            try:
                clashing = self._send_parcels(connection, left, within=within)
            except errors.UniqueViolation:
                clashing = True
                if within:
                    connection.execute("rollback to parcels")
            if not clashing:
                return known
            before = len(known)
            left = self._unsent(connection, left, known)
            if not left:
                return known
            # A try counts only if nothing new was found: else there are fewer left each time.
            tries -= len(known) == before
        raise StoreUnreachable(
            f"the store {self.store.where}: others keep sending the same jobs; try again"
        )

    def _send_parcels(
        self,
        connection: Connection,
        parcels: _Unsent,
        *,
        within: bool,
    ) -> bool:
        """Store them; true if nothing was written because some ids were sent before."""
        # In a transaction, whether the commit waits for the disk was decided when it began.
        relaxed = not within and not durable(self.store, (lane.queue for _, lane, _ in parcels))
        rows = [(*span_of(first, len(bodies)), lane, bodies) for first, lane, bodies in parcels]
        if len(rows) == 1:
            [(first, run, last, lane, bodies)] = rows
            if first == run == last and connection.prepares and not relaxed:
                one = (first, int8(lane.hash), lengths_of(bodies), bodies[0])
                if call(connection, _ONE, one):
                    return False
            values = (first, run, last, int8(lane.hash), int4(len(bodies)), lengths_of(bodies))
            answer = call(connection, _PARCEL, (*values, b"".join(bodies), boolean(relaxed)))
        else:
            values = (
                uuid_array([row[0] for row in rows]),
                uuid_array([row[1] for row in rows]),
                uuid_array([row[2] for row in rows]),
                int8_array([row[3].hash for row in rows]),
                int4_array([len(row[4]) for row in rows]),
                bytea_array([lengths_of(row[4]) for row in rows]),
                bytea_array([b"".join(row[4]) for row in rows]),
                boolean(relaxed),
            )
            answer = call(connection, _PARCELS, values)
        return len(answer[0][0] or b"") > _EMPTY_ARRAY

    def _unsent(
        self,
        connection: Connection,
        parcels: _Unsent,
        known: set[str],
    ) -> _Unsent:
        """The parts of these that were not sent before; ids of the others are added to `known`."""
        db = PostgresDb(connection)
        left: list[tuple[bytes, Lane, Sequence[bytes]]] = []
        for first, lane, bodies in parcels:
            _, run, last = span_of(first, len(bodies))
            before = db.execute(sql.sent_between, (run, last)).fetchall()
            sent = [(row["id"], row["jobs"]) for row in before]
            left += [(start, lane, part) for start, part in new_parts(first, bodies, sent, known)]
        return left


def enqueue_singles(db: PostgresDb, singles: Sequence[Job[Any]], now: float) -> dict[str, Any]:
    """Store jobs as rows; which ids were known, and which jobs hold a unique key instead."""
    for attempt in range(_TRIES):
        db.execute("savepoint jobs")
        try:
            cursor = db.execute(
                sql.send_jobs, (msgspec.json.encode(job_values(singles)).decode(), now)
            )
        except errors.UniqueViolation:
            if attempt == _TRIES - 1:
                raise
            db.execute("rollback to jobs")
            continue
        row = cursor.fetchone()
        return row["answer"] if row else {}
    return {}
