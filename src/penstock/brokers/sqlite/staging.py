"""Writes in parts: jobs in a table that no other verb reads, until their write is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.checks import check_stage, check_staged
from penstock.broker.values import Committed, Epoch, differs
from penstock.brokers.sqlite.enqueuing import SqliteIntake
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.enqueue_packing import packed, searched_fields
from penstock.brokers.tables.locate_job import get_job
from penstock.brokers.tables.rows import lengths_of, split
from penstock.enqueue.ids import from_bytes, to_bytes
from penstock.job import Job, Lane, Parcel

_PAGE = 200  # rows read at a time: a parcel has up to 64 KiB
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Job[Any]).decode


class SqliteStaging:
    """Stage, commit and discard writes in parts."""

    def __init__(self, store: SqliteStore, intake: SqliteIntake) -> None:
        self.store = store
        self.clock = store.clock
        self._intake = intake

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        check_stage(write, part)
        if not jobs:
            with self.store.reading() as db:
                return _staged(db, write).get(part, 0)
        parcels, singles = packed(jobs)
        # Not durable: rows lost in a power cut are missed by the commit of the write, which is.
        with self.store.writing(durable=False) as db:
            now = self.clock.now()
            self._intake.check_ages(db, (*parcels, *singles), now)
            lanes = self._intake.put_lanes(db, searched_fields(parcels, singles))
            rows = [*_packed_rows(parcels, lanes), *_single_rows(singles, lanes)]
            place = {"write": write, "part": part, "now": now}
            db.executemany(sql.stage, [{**place, **row} for row in rows])
        return 0

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        check_stage(write)
        stream, number = (write, 0) if epoch is None else epoch
        jobs = sum(parts.values())
        left_out: list[Job[Any]] = []
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            parameters = {"write": stream, "token": token, "epoch": number}
            parameters |= {"jobs": jobs, "now": change.now}
            if db.execute(sql.publish, parameters).rowcount:
                check_staged(write, parts, _staged(db, write))
                left_out = [
                    job for part in parts for job in self._publish_part(change, write, part)
                ]
                change.finish()
            else:
                row = db.execute(sql.published, parameters).fetchone()
                jobs, token = (row["jobs"], row["token"]) if row else (0, "")
            db.execute(sql.discard, (write,))
        self.store.notify()
        return Committed(jobs, token, tuple(left_out))

    def _publish_part(self, change: Change, write: str, part: str) -> Iterator[Job[Any]]:
        """Store the jobs of a part; those that were stored before in another form."""
        for page in self._pages(change.db, write, part):
            self._intake.check_ages(change.db, page, change.now)
            parcels = [job for job in page if isinstance(job, Parcel)]
            singles = {job.id: job for job in page if isinstance(job, Job)}
            known, _ = self._intake.take_in(change, parcels, list(singles.values()))
            for job in (singles[id] for id in known if id in singles):
                if differs(job, get_job(self.store, change.db, to_bytes(job.id))):
                    yield job

    def _pages(self, db: Db, write: str, part: str) -> Iterator[list[Job[Any] | Parcel]]:
        place = {"write": write, "part": part, "most": _PAGE}
        after = b""
        while rows := db.execute(sql.staged_rows, {**place, "after": after}).fetchall():
            after = rows[-1]["id"]
            yield [
                _decode(row["bodies"])
                if row["lengths"] is None
                else Parcel(
                    from_bytes(row["id"]),
                    self.store.lane(db, row["lane"]),
                    split(row["lengths"], row["bodies"]),
                )
                for row in rows
            ]

    def discard(self, write: str) -> None:
        check_stage(write)
        with self.store.writing(durable=False) as db:
            db.execute(sql.discard, (write,))


def _staged(db: Db, write: str) -> dict[str, int]:
    """How many jobs each part of a write has."""
    return {row["part"]: row["jobs"] for row in db.execute(sql.staged, (write,))}


def _packed_rows(parcels: Sequence[Parcel], lanes: Mapping[Lane, int]) -> Iterator[dict[str, Any]]:
    for parcel in parcels:
        yield {
            "id": to_bytes(parcel.id),
            "lane": lanes[parcel.lane],
            "jobs": len(parcel.bodies),
            "lengths": lengths_of(parcel.bodies),
            "bodies": b"".join(parcel.bodies),
        }


def _single_rows(
    singles: Sequence[Job[Any]], lanes: Mapping[Lane, int]
) -> Iterator[dict[str, Any]]:
    for job in singles:
        bare = msgspec.structs.replace(job, owner=None, given=None)
        row = {"id": to_bytes(job.id), "lane": lanes[job.lane], "jobs": 1, "lengths": None}
        yield {**row, "bodies": _encode(bare)}
