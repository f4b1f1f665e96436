"""Hand over: jobs into the store, each once however often it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec
import psycopg
from psycopg import errors

from penstock.broker.checks import check_age, check_batch, check_lane, check_whole_flow
from penstock.broker.values import Batch, Enqueued
from penstock.brokers.postgres.binary_arrays import bigs, blobs, ints, uuids
from penstock.brokers.postgres.caller_transaction import NotifyAfterCommit, PostgresJoin
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.enqueue_values import Handed, flow_values, job_values, span_of
from penstock.brokers.postgres.errors import AnswerLost, refuse
from penstock.brokers.postgres.function_calls import (
    BIG,
    BIGS,
    BLOBS,
    BYTES,
    FLAG,
    INT,
    INTS,
    UUID,
    UUIDS,
    Call,
    big,
    call,
    flag,
    integer,
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
from penstock.brokers.tables.rows import lengths_of
from penstock.enqueue.caller_connection import caller_of, hold
from penstock.enqueue.ids import to_bytes
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.flows.flow import Flow
from penstock.job import Job, Lane, Parcel

_ONE = Call("one", sql.send_one, (UUID, BIG, BYTES, BYTES))
_PARCEL = Call("parcel", sql.send_parcel, (UUID, UUID, UUID, BIG, INT, BYTES, BYTES, FLAG))
_PARCELS = Call("parcels", sql.send_parcels, (UUIDS, UUIDS, UUIDS, BIGS, INTS, BLOBS, BLOBS, FLAG))
_NO_IDS = 12  # bytes of an array without elements
LOCK_SECONDS = 2.0  # others wait behind an enqueue: it had better fail and be tried again
_TRIES = 3  # two senders of one id at the same moment: the later one sees it at its second try


class PostgresIntake:
    """Enqueue; and how settlements, schedules and writes in parts store jobs."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.clock = store.clock
        self._bell = NotifyAfterCommit(store)
        self.close = self._bell.close

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
        handed, now = self.handed(jobs, flow)
        send = partial(retried(self._enqueue), handed, batch, now)
        try:
            # A batch counts its rows: sent twice, the second is refused.
            return sent_again(send) if batch is None else send()
        except AnswerLost as error:
            raise UnknownOutcome(
                f"{error}; whether the jobs are stored is not known. Sending them again is safe: "
                "each is stored once",
                [*handed.parcels, *handed.singles],
            ) from error.__cause__

    def handed(self, jobs: Sequence[Job[Any] | Parcel], flow: Flow | None) -> tuple[Handed, float]:
        handed = Handed(*packed(jobs, flow), flow)
        now = self.clock.now()
        for job in (*handed.parcels, *handed.singles):
            check_age(job.id, now, now - self.store.traits.retention)
        return handed, now

    def join(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        batch: Batch | None = None,
        flow: Flow | None = None,
    ) -> PostgresJoin:
        """These jobs as a value, to be written on a connection of the caller's."""
        handed, now = self.handed(jobs, flow)
        return PostgresJoin(
            self.store,
            handed,
            now,
            prepare=partial(self.put_lanes, handed) if self._new_lanes(handed) else None,
            bell=self._bell,
            whole=frozenset(job.id for job in jobs if isinstance(job, Parcel)),
            batch=batch,
        )

    def _enqueue(self, handed: Handed, batch: Batch | None, now: float) -> Enqueued:
        lanes = self.put_lanes(handed)
        with self.store.lend() as connection:
            try:
                if batch is handed.flow is None and not handed.singles and handed.parcels:
                    known = self._enqueue_parcels(connection, handed.parcels)
                    answer = Enqueued(frozenset(known))
                else:
                    with self.store.transaction(
                        connection,
                        durable=durable(self.store, (lane.queue for lane in handed.lanes())),
                        locks=LOCK_SECONDS,
                    ) as db:
                        answer = self._enqueue_all(db, handed, batch, now)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if connection.closed:
                    raise AnswerLost(
                        f"the store {self.store.where} did not answer: {str(error).strip()}"
                    ) from error
                raise
            except errors.RaiseException:
                raise
            except psycopg.Error as error:
                refuse(error)
                raise
            self.store.forget_claimable(lanes)
            self.store.notify_on(connection, lanes)
        return answer

    def _enqueue_all(
        self, db: PostgresDb, handed: Handed, batch: Batch | None, now: float
    ) -> Enqueued:
        flow = handed.flow
        if flow is not None:
            db.execute("savepoint flow")
            # Its row first: whoever sends the same flow at this moment is waited for.
            values = msgspec.json.encode(flow_values(flow)).decode()
            row = db.execute(sql.send_flow, (values, now)).fetchone()
            if row is None or not row["new"]:
                return Enqueued(handed.ids())
        stored = self._count_batch(db, batch, handed.rows, now) if batch else 0
        known: set[str] = set()
        if handed.parcels:
            db.execute("savepoint parcels")
            known = self._enqueue_parcels(db.connection, handed.parcels, within=True)
        standing: dict[str, str] = {}
        if handed.singles:
            answer = enqueue_singles(db, handed.singles, now)
            known.update(answer["known"])
            standing = answer["standing"]
        if flow is not None and known:
            check_whole_flow(flow.id, flow.jobs, known)
            db.execute("rollback to flow")  # it was forgotten before its jobs were
            return Enqueued(frozenset(known))
        return Enqueued(frozenset(known), standing, stored)

    def store_spawned(self, change: Change) -> None:
        db = cast("PostgresDb", change.db)
        handed = Handed([], [])
        flows: list[tuple[str, bytes | None, float]] = []
        for place, outcome in change.spawned:
            parcels, singles = packed(outcome.spawned, outcome.flow, check=False)
            handed.parcels.extend(parcels)
            handed.singles.extend(singles)
            if outcome.flow is not None:
                values = msgspec.json.encode(flow_values(outcome.flow)).decode()
                flows.append((values, None if place is None else place[1], change.now))
        change.spawned.clear()
        change.woken.update(self.put_lanes(handed))
        self._enqueue_all(db, handed, None, change.now)
        db.every(sql.spawn_flow, flows)

    def _count_batch(self, db: PostgresDb, batch: Batch, rows: int, now: float) -> int:
        row = db.execute(sql.batch, {"id": batch.id}).fetchone()
        stored = row["rows"] if row else 0
        if not rows:
            return stored
        check_batch(batch.id, batch.count, stored)
        db.execute(sql.put_batch, {"id": batch.id, "rows": stored + rows, "at": now})
        return stored + rows

    def put_lanes(self, handed: Handed) -> list[int]:
        """Write down lanes that are new, in a transaction of their own.

        Within a caller's, that lane's first user would keep all others waiting until the end.
        """
        new = self._new_lanes(handed)
        lanes = handed.lanes()
        if new:
            with self.store.writing() as db:
                db.executemany(sql.put_lane, sorted(new, key=lambda lane: lane["hash"]))
            with self.store.writing() as db:
                for lane in lanes:
                    self.store.lanes.pop(lane.hash, None)
                    self.store.lane(db, lane.hash)
        return [lane.hash for lane in lanes]

    def _new_lanes(self, handed: Handed) -> list[dict[str, Any]]:
        fields = searched_fields(handed.parcels, handed.singles)
        new: list[dict[str, Any]] = []
        for lane, searched in fields.items():
            check_lane(lane)
            number, search = lane.hash, ",".join(sorted(searched))
            known = self.store.searched.get(number)
            if known is not None and (not known or known == search):
                continue  # as most: nothing is indexed, or the same, and that is known
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
        """Store them, but for the ids that were sent before, which it returns."""
        known: set[str] = set()
        left: list[tuple[bytes, Lane, Sequence[bytes]]] = [
            (to_bytes(parcel.id), parcel.lane, parcel.bodies) for parcel in parcels
        ]
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
            # As many as it takes while others store some of these: each time there are fewer left.
            tries -= len(known) == before
        raise StoreUnreachable(
            f"the store {self.store.where}: others keep sending the same jobs; try again"
        )

    def _send_parcels(
        self,
        connection: Connection,
        parcels: Sequence[tuple[bytes, Lane, Sequence[bytes]]],
        *,
        within: bool,
    ) -> bool:
        # Within a transaction it was decided when that began.
        relaxed = not within and not durable(self.store, (lane.queue for _, lane, _ in parcels))
        rows = [(*span_of(first, len(bodies)), lane, bodies) for first, lane, bodies in parcels]
        if len(rows) == 1:
            [(first, run, last, lane, bodies)] = rows
            if first == run == last and connection.prepares and not relaxed:
                one = (first, big(lane.hash), lengths_of(bodies), bodies[0])
                if call(connection, _ONE, one):
                    return False
            values = (first, run, last, big(lane.hash), integer(len(bodies)), lengths_of(bodies))
            answer = call(connection, _PARCEL, (*values, b"".join(bodies), flag(relaxed)))
        else:
            values = (
                uuids([row[0] for row in rows]),
                uuids([row[1] for row in rows]),
                uuids([row[2] for row in rows]),
                bigs([row[3].hash for row in rows]),
                ints([len(row[4]) for row in rows]),
                blobs([lengths_of(row[4]) for row in rows]),
                blobs([b"".join(row[4]) for row in rows]),
                flag(relaxed),
            )
            answer = call(connection, _PARCELS, values)
        return len(answer[0][0] or b"") > _NO_IDS

    def _unsent(
        self,
        connection: Connection,
        parcels: Sequence[tuple[bytes, Lane, Sequence[bytes]]],
        known: set[str],
    ) -> list[tuple[bytes, Lane, Sequence[bytes]]]:
        """What of these was not sent before; the others are added to `known`."""
        db = PostgresDb(connection)
        left: list[tuple[bytes, Lane, Sequence[bytes]]] = []
        for first, lane, bodies in parcels:
            _, run, last = span_of(first, len(bodies))
            before = db.execute(sql.sent_between, (run, last)).fetchall()
            sent = [(row["id"], row["jobs"]) for row in before]
            left += [(start, lane, part) for start, part in new_parts(first, bodies, sent, known)]
        return left


def enqueue_singles(db: PostgresDb, singles: Sequence[Job[Any]], now: float) -> dict[str, Any]:
    """Store jobs that need rows of their own; what was known, and what stands instead."""
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
