"""Staged writes: jobs that no other verb sees until their write is committed.

Parcels are stored at once in the table of all parcels, in a lane that no claim looks at: to commit
the write changes their lane. Staging does not wait for the disk: the commit of the write counts
what is there, and flushes it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from psycopg import errors

from penstock.broker.checks import check_stage, check_staged
from penstock.brokers.postgres.binary_arrays import bytea_array, int4_array, int8_array, uuid_array
from penstock.brokers.postgres.enqueue_values import NewJobs, job_values
from penstock.brokers.postgres.enqueuing import PostgresIntake
from penstock.brokers.postgres.errors import Contended, StoreBusy
from penstock.brokers.postgres.retrying import retried
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.rows import ids_after, lengths_of, packed_jobs
from penstock.enqueue.ids import to_bytes
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job, Parcel

COMMIT_SECONDS = 3600.0  # a write may have many millions of jobs
_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
# Five columns; the first has 8 bytes, penstock.lane_staged(); the second has 16, an id.
_LANE = struct.pack(">hiqi", 5, 8, -(2**63), 16)
_JOBS = struct.Struct(">iii").pack
_SIZE = struct.Struct(">i").pack
_ROWS_PER_CALL = 500  # up to 32 MB of parcels


class PostgresStaging:
    """Stage, commit and discard writes."""

    def __init__(self, store: PostgresStore, intake: PostgresIntake) -> None:
        self.store = store
        self.clock = store.clock
        self._intake = intake

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        check_stage(write, part)
        new_jobs, now = self._intake.pack(jobs, None)
        self._intake.put_lanes(new_jobs)
        for start in range(0, max(len(new_jobs.parcels), len(new_jobs.singles)), _ROWS_PER_CALL):
            page = slice(start, start + _ROWS_PER_CALL)
            self._stage(write, part, NewJobs(new_jobs.parcels[page], new_jobs.singles[page]), now)

    @retried
    def _stage(self, write: str, part: str, new_jobs: NewJobs, now: float) -> None:
        staged_in = {"write": write, "part": part, "now": now}
        with self.store.writing(durable=False) as db:
            singles = [*new_jobs.singles, *self._stage_parcels(db, staged_in, new_jobs.parcels)]
            if singles:
                ids = uuid_array([to_bytes(job.id) for job in singles])
                lanes = int8_array([job.lane.hash for job in singles])
                bodies = bytea_array([msgspec.json.encode(value) for value in job_values(singles)])
                db.execute(
                    sql.stage_jobs, {**staged_in, "ids": ids, "lanes": lanes, "bodies": bodies}
                )

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

    def commit_write(self, write: str, parts: Mapping[str, int]) -> int:
        check_stage(write)
        try:
            jobs = self._commit_write(write, parts)
        except StoreBusy:
            raise
        except StoreUnreachable:
            # It may be committed and only the answer lost: sent again, it answers the same.
            jobs = self._commit_again(write, parts)
        self.store.forget_claimable()
        self.store.notify()
        return jobs

    def _commit_again(self, write: str, parts: Mapping[str, int]) -> int:
        try:
            return self._commit_write(write, parts)
        except StoreUnreachable as error:
            raise UnknownOutcome(
                f"{error}; whether write {write!r} is committed is not known. To commit it again "
                "is safe: it is committed once",
                [],
            ) from error

    @retried
    def _commit_write(self, write: str, parts: Mapping[str, int]) -> int:
        now, jobs = self.clock.now(), sum(parts.values())
        with self.store.connection(COMMIT_SECONDS) as connection:
            try:
                with self.store.transaction(connection) as db:
                    # First of all: this waits for whoever commits the same write at this moment.
                    named = {"write": write, "jobs": jobs, "now": now}
                    if db.execute(sql.publish, named).rowcount:
                        staged = db.execute(sql.staged, (write,)).fetchall()
                        check_staged(write, parts, {row["part"]: row["jobs"] for row in staged})
                        oldest = now - self.store.traits.retention
                        db.execute(sql.publish_parts, (write, list(parts), oldest, now))
                    else:
                        row = db.execute(sql.published, (write,)).fetchone()
                        jobs = row["jobs"] if row else 0
                    db.execute(sql.discard, (write,))
            except errors.UniqueViolation as error:
                raise Contended(
                    f"the store {self.store.where}: others enqueue the very jobs of write "
                    f"{write!r} at this moment; try again"
                ) from error
        return jobs

    def discard(self, write: str) -> None:
        check_stage(write)
        with (
            self.store.connection(COMMIT_SECONDS) as connection,
            self.store.transaction(connection, durable=False) as db,
        ):
            db.execute(sql.discard, (write,))


def _copy_rows(firsts: Sequence[bytes], lengths: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Parcels in the binary format of COPY."""
    parts = [_HEAD]
    for first, sizes, packed in zip(firsts, lengths, bodies, strict=True):
        parts += (_LANE, first, _JOBS(4, len(sizes) // 4, len(sizes)), sizes)
        parts += (_SIZE(len(packed)), packed)
    parts.append(b"\xff\xff")
    return b"".join(parts)
