"""Staged writes: jobs that no other verb sees until their write is committed.

Parcels are stored at once in the table of all parcels, in a lane that no claim looks at: to commit
the write changes their lane. Jobs with rows of their own (those with a key, an id or a time) are
copied into a table of their own, and the commit stores them with one statement for all. Staging
does not wait for the disk: the commit of the write counts what is there, and flushes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec
from psycopg import errors

from penstock.broker.checks import check_stage, check_staged
from penstock.broker.values import Committed, Epoch
from penstock.brokers.postgres.binary_arrays import bytea_array, int4_array, int8_array, uuid_array
from penstock.brokers.postgres.enqueue_values import job_values, without_nul
from penstock.brokers.postgres.enqueuing import PostgresIntake
from penstock.brokers.postgres.errors import Contended, StoreBusy
from penstock.brokers.postgres.retrying import retried
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.rows import (
    ids_after,
    indexed,
    lengths_of,
    made_at,
    packed_jobs,
    run_of,
    text_of,
)
from penstock.enqueue.ids import to_bytes
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.job import Job, Parcel

COMMIT_SECONDS = 3600.0  # a write may have many millions of jobs
_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
# Five columns; the first has 8 bytes, penstock.lane_staged(); the second has 16, an id.
_LANE = struct.pack(">hiqi", 5, 8, -(2**63), 16)
_JOBS = struct.Struct(">iii").pack
_SIZE = struct.Struct(">i").pack
_DERIVED = 0xFF  # the first byte of ids that contain no time
_ROWS_PER_CALL = 500  # up to 32 MB of parcels
_COPIED_BYTES = 8 * 1024 * 1024  # of jobs, in one transaction
_MOST_LEFT_OUT = 10_000  # jobs that others stored with another body while a write was under way
_JOB_HEAD = struct.Struct(">hi16si").pack  # how many columns; the call; the size of the id
_JOB_LANE = struct.Struct(">iq").pack
_JOB_TIME = struct.Struct(">id").pack
_NULL = b"\xff\xff\xff\xff"
_NO = b"\x00\x00\x00\x01\x00"  # false
_ONLY_A_KEY = _NULL + _NO + 7 * _NULL  # the columns behind the key


class PostgresStaging:
    """Stage, commit and discard writes."""

    def __init__(self, store: PostgresStore, intake: PostgresIntake) -> None:
        self.store = store
        self.clock = store.clock
        self._intake = intake

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        check_stage(write, part)
        if not jobs:
            with self.store.reading() as db:
                return _staged(db, write).get(part, 0)
        new_jobs, now = self._intake.pack(jobs, None)
        self._intake.put_lanes(new_jobs)
        staged_in = {"write": write, "part": part, "now": now}
        for start in range(0, len(new_jobs.parcels), _ROWS_PER_CALL):
            self._stage(staged_in, new_jobs.parcels[start : start + _ROWS_PER_CALL])
        rows = [(to_bytes(job.id), job) for job in new_jobs.singles]
        # Neighbours in a run of ids may have been sent in a parcel: they are looked at one by one.
        apart = [job for raw, job in rows if raw[0] != _DERIVED and raw != run_of(raw)]
        for start in range(0, len(apart), _ROWS_PER_CALL):
            self._stage(staged_in, [], apart[start : start + _ROWS_PER_CALL])
        if len(apart) < len(rows):
            for page in _pages(rows, {job.id for job in apart}):
                self._stage_jobs(staged_in, page)
        return 0

    @retried
    def _stage(
        self,
        staged_in: dict[str, Any],
        parcels: Sequence[Parcel],
        apart: Sequence[Job[Any]] = (),
    ) -> None:
        with self.store.writing(durable=False) as db:
            singles = [*apart, *self._stage_parcels(db, staged_in, parcels)]
            if singles:
                ids = uuid_array([to_bytes(job.id) for job in singles])
                lanes = int8_array([job.lane.hash for job in singles])
                bodies = bytea_array([msgspec.json.encode(value) for value in job_values(singles)])
                db.execute(
                    sql.stage_apart, {**staged_in, "ids": ids, "lanes": lanes, "bodies": bodies}
                )

    @retried
    def _stage_jobs(
        self, staged_in: dict[str, Any], rows: Sequence[tuple[bytes, Job[Any]]]
    ) -> None:
        """Stage jobs of their own by COPY; nothing if the same call was made before."""
        call = sha256(b"".join(raw for raw, _ in rows)).digest()[:16]
        timed = [raw for raw, _ in rows if raw[0] != _DERIVED]
        parameters = {
            **staged_in,
            "call": sha256(f"{staged_in['write']}\n{staged_in['part']}".encode() + call).digest()[
                :16
            ],
            "jobs": len(rows),
            "oldest": min(timed, default=None),
            "tagged": any(job.tags or job.search for _, job in rows),
            "has_unique": any(job.unique is not None for _, job in rows),
        }
        with self.store.writing(durable=False) as db:
            if db.execute(sql.stage_call, parameters).rowcount:
                with db.connection.cursor().copy(sql.stage_jobs.encode()) as copy:
                    copy.write(_copy_jobs(cast("bytes", parameters["call"]), rows))

    def _stage_parcels(
        self, db: PostgresDb, staged_in: dict[str, Any], parcels: Sequence[Parcel]
    ) -> list[Job[Any]]:
        """Stage them; returns the jobs of parcels that another part or write has staged already."""
        if not parcels:
            return []
        firsts = [to_bytes(parcel.id) for parcel in parcels]
        lengths = [lengths_of(parcel.bodies) for parcel in parcels]
        bodies = [b"".join(parcel.bodies) for parcel in parcels]
        parameters = {
            **staged_in,
            "ids": uuid_array(firsts),
            "lanes": int8_array([parcel.lane.hash for parcel in parcels]),
            "jobs": int4_array([len(parcel.bodies) for parcel in parcels]),
        }
        db.execute("savepoint parcels")
        try:
            with db.connection.cursor().copy(sql.stage_parcels.encode()) as copy:
                copy.write(_copy_rows(firsts, lengths, bodies))
            db.execute(sql.stage, parameters)
            return []
        except errors.UniqueViolation:
            db.execute("rollback to parcels")
        parameters |= {"lengths": bytea_array(lengths), "bodies": bytea_array(bodies)}
        db.execute(sql.stage_again, parameters)
        held = {row["id"] for row in db.execute(sql.staged_among, parameters)}
        return [
            job
            for raw, parcel in zip(firsts, parcels, strict=True)
            if raw not in held
            for job in packed_jobs(parcel.lane, ids_after(raw, len(parcel.bodies)), parcel.bodies)
        ]

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        check_stage(write)
        stream, number = (write, 0) if epoch is None else epoch
        named = {"write": stream, "token": token, "epoch": number}
        try:
            committed = self._commit_write(write, parts, named)
        except StoreBusy:
            raise
        except StoreUnreachable:
            # It may be committed and only the answer lost: sent again, it answers the same.
            committed = self._commit_again(write, parts, named)
        self.store.forget_claimable()
        self.store.notify()
        return committed

    def _commit_again(
        self, write: str, parts: Mapping[str, int], named: dict[str, Any]
    ) -> Committed:
        try:
            return self._commit_write(write, parts, named)
        except StoreUnreachable as error:
            raise UnknownOutcome(
                f"{error}; whether write {write!r} is committed is not known. To commit it again "
                "is safe: it is committed once",
                [],
            ) from error

    @retried
    def _commit_write(
        self, write: str, parts: Mapping[str, int], named: dict[str, Any]
    ) -> Committed:
        now = self.clock.now()
        committed = Committed(sum(parts.values()), named["token"])
        with self.store.connection(COMMIT_SECONDS) as connection:
            try:
                with self.store.transaction(connection) as db:
                    # First of all: this waits for whoever commits the same write at this moment.
                    parameters = {**named, "jobs": committed.jobs, "now": now}
                    if db.execute(sql.publish, parameters).rowcount:
                        check_staged(write, parts, _staged(db, write))
                        oldest = now - self.store.traits.retention
                        published = (write, list(parts), oldest, now)
                        db.execute(sql.publish_parts, published)
                        rows = db.execute(sql.publish_jobs, published).fetchmany(_MOST_LEFT_OUT)
                        committed = committed._replace(left_out=self._left_out(db, write, rows))
                    else:
                        row = db.execute(sql.published, named).fetchone()
                        committed = (
                            Committed(row["jobs"], row["token"]) if row else Committed(0, "")
                        )
                    db.execute(sql.discard, (write,))
            except errors.UniqueViolation as error:
                raise Contended(
                    f"the store {self.store.where}: others enqueue the very jobs of write "
                    f"{write!r} at this moment; try again"
                ) from error
        return committed

    def _left_out(self, db: PostgresDb, write: str, rows: Sequence[Any]) -> tuple[Job[Any], ...]:
        if len(rows) == _MOST_LEFT_OUT:
            raise Refused(
                f"write {write!r}: others enqueued {_MOST_LEFT_OUT:,} or more of its ids at the"
                " same time; make the write again, nothing of it was stored"
            )
        return tuple(
            job
            for row in rows
            for job in packed_jobs(self.store.lane(db, row["lane"]), [row["id"]], [row["body"]])
        )

    def discard(self, write: str) -> None:
        check_stage(write)
        with (
            self.store.connection(COMMIT_SECONDS) as connection,
            self.store.transaction(connection, durable=False) as db,
        ):
            db.execute(sql.discard, (write,))


def _staged(db: PostgresDb, write: str) -> dict[str, int]:
    """How many jobs each part of a write has."""
    rows = db.execute(sql.staged, {"write": write}).fetchall()
    return {row["part"]: row["jobs"] for row in rows}


def _copy_rows(firsts: Sequence[bytes], lengths: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Parcels in the binary format of COPY."""
    parts = [_HEAD]
    for first, sizes, packed in zip(firsts, lengths, bodies, strict=True):
        parts += (_LANE, first, _JOBS(4, len(sizes) // 4, len(sizes)), sizes)
        parts += (_SIZE(len(packed)), packed)
    parts.append(b"\xff\xff")
    return b"".join(parts)


def _pages(
    rows: Sequence[tuple[bytes, Job[Any]]], without: set[str]
) -> Iterator[list[tuple[bytes, Job[Any]]]]:
    """Rows for one COPY each; the same rows give the same pages."""
    page: list[tuple[bytes, Job[Any]]] = []
    size = 0
    for row in rows:
        if row[1].id in without:
            continue
        page.append(row)
        size += len(row[1].body) + 100
        if size >= _COPIED_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _copy_jobs(call: bytes, rows: Sequence[tuple[bytes, Job[Any]]]) -> bytes:
    """Jobs in the binary format of COPY."""
    head = _JOB_HEAD(15, 16, call, 16)
    parts = [_HEAD]
    lanes: dict[tuple[Any, ...], bytes] = {}
    keys: dict[str | None, bytes] = {None: _NULL}  # few, and each many times
    for raw, job in rows:
        place = (job.queue, job.task, job.version, job.priority, job.runs_on, job.app)
        lane = lanes.get(place)
        if lane is None:
            lane = lanes[place] = _JOB_LANE(8, job.lane.hash)
        key = keys.get(job.key)
        if key is None:
            key = keys[job.key] = _text(job.key or "")
        body = job.body
        time = _NULL if raw[0] == _DERIVED else _JOB_TIME(8, made_at(raw))
        parts += (head, raw, lane, time, _SIZE(len(body)), body, key)
        if job.run_at is job.unique is job.expires_at is None and not (
            job.tags or job.search or job.at_most_once
        ):
            parts.append(_ONLY_A_KEY)
        else:
            parts += _more_columns(job)
    parts.append(b"\xff\xff")
    return b"".join(parts)


def _more_columns(job: Job[Any]) -> Iterator[bytes]:
    unique = job.unique
    yield _number(job.run_at)
    yield _SIZE(1) + (b"\x01" if job.at_most_once else b"\x00")
    yield _NULL if unique is None else _text(unique.key)
    yield _NULL if unique is None else _text(unique.until)
    yield _number(None if unique is None else unique.seconds)
    yield _number(job.expires_at)
    for pairs in (job.tags, job.search):
        text = text_of({name: without_nul(value) for name, value in pairs.items()})
        yield _NULL if text is None else _text(text)
    names = [[name, indexed(value)] for name, value in job.tags.items()]
    names += [[f"arg.{name}", indexed(value)] for name, value in job.search.items()]
    yield _text(msgspec.json.encode(names).decode()) if names else _NULL


def _number(value: float | None) -> bytes:
    return _NULL if value is None else _JOB_TIME(8, value)


def _text(value: str) -> bytes:
    encoded = without_nul(value).encode()
    return _SIZE(len(encoded)) + encoded
