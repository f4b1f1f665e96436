"""Where one job is: in a row of its own, in a parcel, in a lease, or in the history."""

from __future__ import annotations

from typing import Any

from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.rows import (
    SETTLED,
    contents,
    job_of,
    leased_jobs,
    ready_jobs,
    run_of,
    succeeded_job,
)
from penstock.job import Job


def get_job(store: TableStore, db: Db, raw: bytes) -> Job[Any] | None:
    """The job of this id, wherever it is."""
    row = db.execute(store.sql.get, (raw,)).fetchone()
    if row is not None:
        return job_of(store.lane(db, row["lane"]), row)
    parcel = parcel_of(store, db, raw)
    if parcel is not None:
        row, ids, bodies = parcel
        body = bodies[ids.index(raw)]
        [job] = ready_jobs(store.lane(db, row["lane"]), row, [raw], [body])
        return job
    for lease, offset in leases_of(db, store.sql.lease_of, raw):
        return leased_job(store, db, lease, offset)
    row = db.execute(store.sql.succeeded, (raw,)).fetchone()
    return None if row is None else succeeded_job(store.lane(db, row["lane"]), row)


def parcel_of(store: TableStore, db: Db, raw: bytes) -> tuple[Row, list[bytes], list[bytes]] | None:
    """The parcel that holds this id, with its ids and bodies."""
    parcel = db.execute(store.sql.parcel_before, (run_of(raw), raw)).fetchone()
    if parcel is None:
        return None
    ids, bodies = contents(parcel["id"], parcel["jobs"], parcel["lengths"], parcel["bodies"])
    return (parcel, ids, bodies) if raw in ids else None


def leases_of(db: Db, statement: str, raw: bytes) -> list[tuple[Row, int]]:
    """The lease that holds this id, as the statement finds it, with its place in there."""
    found: list[tuple[Row, int]] = []
    for lease in db.execute(statement, (raw,)).fetchall():
        place = lease["ids"].find(raw)
        while place >= 0 and place % 16:
            place = lease["ids"].find(raw, place + 1)
        if place >= 0 and lease["marks"][place // 16] != SETTLED:
            found.append((lease, place // 16))
    return found


def leased_job(store: TableStore, db: Db, lease: Row, offset: int) -> Job[Any]:
    """The job at this place of a lease."""
    for _, job in leased_jobs(store.lane(db, lease["lane"]), lease):
        if job.lease[1] == offset:
            return job
    raise LookupError(offset)
