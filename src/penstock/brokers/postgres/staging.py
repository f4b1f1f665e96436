"""Writes in parts: jobs in a table that no other verb reads, until their write is published.

What is staged need not survive a crash of the server, and is not in its log: publish counts what is
there, and refuses a write of which anything is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import errors

from penstock.brokers.postgres.arrays import bigs, blobs, ints, uuids
from penstock.brokers.postgres.claiming import Claiming
from penstock.brokers.postgres.hand_over import refuse
from penstock.brokers.postgres.handed import Handed, job_values
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import Busy, Contended, again
from penstock.brokers.tables.rows import lengths_of
from penstock.checks import check_stage, check_staged
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.ids import to_bytes
from penstock.job import Job, Parcel

PATIENCE_SECONDS = 3600.0  # a publish of many millions
_ROWS = 500  # staged with one statement: up to 32 MB of parcels


class Staging(Claiming):
    """Stage, publish and discard."""

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        check_stage(write, part)
        handed, now = self._handed(jobs, None)
        self._put_lanes(handed)
        for start in range(0, max(len(handed.parcels), len(handed.singles)), _ROWS):
            some = slice(start, start + _ROWS)
            self._stage(write, part, Handed(handed.parcels[some], handed.singles[some]), now)

    @again
    def _stage(self, write: str, part: str, handed: Handed, now: float) -> None:
        parcels, singles = handed.parcels, handed.singles
        encoded = [msgspec.json.encode(value) for value in job_values(singles)]
        with self.store.writing(durable=False) as db:
            db.execute(
                sql.stage,
                (
                    *(write, part, now),
                    uuids([to_bytes(job.id) for job in (*parcels, *singles)]),
                    bigs([job.lane.hash for job in (*parcels, *singles)]),
                    ints([len(parcel.bodies) for parcel in parcels] + [1] * len(singles)),
                    blobs(
                        [lengths_of(parcel.bodies) for parcel in parcels] + [None] * len(singles)
                    ),
                    blobs([b"".join(parcel.bodies) for parcel in parcels] + encoded),
                ),
            )

    def publish(self, write: str, parts: Mapping[str, int]) -> int:
        check_stage(write)
        try:
            jobs = self._publish(write, parts)
        except Busy:
            raise
        except StoreUnreachable:
            # It may be published, and the answer lost: whoever asks again is told.
            jobs = self._publish_again(write, parts)
        self.offers.forget()
        self._ring()
        return jobs

    def _publish_again(self, write: str, parts: Mapping[str, int]) -> int:
        try:
            return self._publish(write, parts)
        except StoreUnreachable as error:
            raise UnknownOutcome(
                f"{error}; whether write {write!r} is published is not known. To publish it again "
                "is safe: it is published once",
                [],
            ) from error

    @again
    def _publish(self, write: str, parts: Mapping[str, int]) -> int:
        now, jobs = self.clock.now(), sum(parts.values())
        with self.store.lend(PATIENCE_SECONDS) as connection:
            try:
                with self.store.transaction(connection) as db:
                    # First of all: another who publishes the same write is waited for.
                    named = {"write": write, "jobs": jobs, "now": now}
                    if db.execute(sql.publish, named).rowcount:
                        staged = db.execute(sql.staged, (write,)).fetchall()
                        check_staged(write, parts, {row["part"]: row["jobs"] for row in staged})
                        oldest = now - self.retention
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
