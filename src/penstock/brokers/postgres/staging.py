"""Writes in parts: jobs that no other verb sees, until their write is published.

Parcels are stored at once, where all parcels are, in a lane that is never offered: to publish one
changes its lane. Nothing staged has to be on the disk: publish counts what is there, and its own
commit carries it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import errors

from penstock.broker.checks import check_stage, check_staged
from penstock.brokers.postgres.binary_arrays import bigs, blobs, ints, uuids
from penstock.brokers.postgres.enqueue_values import Handed, job_values
from penstock.brokers.postgres.enqueuing import PostgresIntake
from penstock.brokers.postgres.errors import Contended, StoreBusy, refuse
from penstock.brokers.postgres.retrying import retried
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.rows import ids_after, lengths_of, packed_jobs
from penstock.enqueue.ids import to_bytes
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job, Parcel

PATIENCE_SECONDS = 3600.0  # a publish of many millions
_HEAD = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_LANE = struct.pack(">hiqi", 5, 8, -(2**63), 16)  # five columns; penstock.lane_staged(); an id
_JOBS = struct.Struct(">iii").pack
_SIZE = struct.Struct(">i").pack
_ROWS = 500  # staged with one statement: up to 32 MB of parcels


class PostgresStaging:
    """Stage, commit and discard writes in parts."""

    def __init__(self, store: PostgresStore, intake: PostgresIntake) -> None:
        self.store = store
        self.clock = store.clock
        self._intake = intake

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        check_stage(write, part)
        handed, now = self._intake.handed(jobs, None)
        self._intake.put_lanes(handed)
        for start in range(0, max(len(handed.parcels), len(handed.singles)), _ROWS):
            some = slice(start, start + _ROWS)
            self._stage(write, part, Handed(handed.parcels[some], handed.singles[some]), now)

    @retried
    def _stage(self, write: str, part: str, handed: Handed, now: float) -> None:
        place = {"write": write, "part": part, "now": now}
        with self.store.writing(durable=False) as db:
            singles = [*handed.singles, *self._stage_parcels(db, place, handed.parcels)]
            if singles:
                ids = uuids([to_bytes(job.id) for job in singles])
                lanes = bigs([job.lane.hash for job in singles])
                bodies = blobs([msgspec.json.encode(value) for value in job_values(singles)])
                db.execute(sql.stage_jobs, {**place, "ids": ids, "lanes": lanes, "bodies": bodies})

    def _stage_parcels(
        self, db: PostgresDb, place: dict[str, Any], parcels: Sequence[Parcel]
    ) -> list[Job[Any]]:
        """Stage them; answers the jobs of those that another part, or another write, holds."""
        if not parcels:
            return []
        firsts = [to_bytes(parcel.id) for parcel in parcels]
        lengths = [lengths_of(parcel.bodies) for parcel in parcels]
        bodies = [b"".join(parcel.bodies) for parcel in parcels]
        parameters = {
            **place,
            "ids": uuids(firsts),
            "lanes": bigs([parcel.lane.hash for parcel in parcels]),
            "jobs": ints([len(parcel.bodies) for parcel in parcels]),
        }
        db.execute("savepoint parcels")
        try:
            with db.connection.cursor().copy(sql.stage_parcels.encode()) as lines:
                lines.write(_lines(firsts, lengths, bodies))
            db.execute(sql.stage, parameters)
            return []
        except errors.UniqueViolation:
            db.execute("rollback to parcels")
        parameters |= {"lengths": blobs(lengths), "bodies": blobs(bodies)}
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
            # It may be committed, and the answer lost: whoever asks again is told.
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
        with self.store.lend(PATIENCE_SECONDS) as connection:
            try:
                with self.store.transaction(connection) as db:
                    # First of all: another who publishes the same write is waited for.
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
            except psycopg.Error as error:
                refuse(error)
                raise
        return jobs

    def discard(self, write: str) -> None:
        check_stage(write)
        with (
            self.store.lend(PATIENCE_SECONDS) as connection,
            self.store.transaction(connection, durable=False) as db,
        ):
            db.execute(sql.discard, (write,))


def _lines(firsts: Sequence[bytes], lengths: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Parcels in PostgreSQL's binary form of COPY."""
    parts = [_HEAD]
    for first, sizes, packed in zip(firsts, lengths, bodies, strict=True):
        parts += (_LANE, first, _JOBS(4, len(sizes) // 4, len(sizes)), sizes)
        parts += (_SIZE(len(packed)), packed)
    parts.append(b"\xff\xff")
    return b"".join(parts)
