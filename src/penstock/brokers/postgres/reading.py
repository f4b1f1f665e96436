"""Look: readers of the history never see a row before all rows with lower positions."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import check_last
from penstock.broker.views import Event
from penstock.brokers.positions import number_of
from penstock.brokers.postgres.binary_arrays import uuid_array
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.locate_job import get_job
from penstock.brokers.tables.reading import Looks
from penstock.brokers.tables.rows import job_of, succeeded_job
from penstock.enqueue.ids import to_bytes
from penstock.job import Job

_WAIT_SECONDS = 0.5  # how long a reader waits for open transactions
_PAUSE_SECONDS = 0.005
_DERIVED = 0xFF  # the first byte of such an id


class PostgresLooks(Looks[PostgresStore]):
    """Look, as every store in tables does; but history waits for transactions that may commit."""

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        raw = {to_bytes(id): id for id in ids}
        found: dict[str, Job[Any]] = {}
        with self.store.reading() as db:
            for row in db.execute(sql.get_many, (uuid_array(list(raw)),)):
                found[raw.pop(row["id"])] = job_of(self.store.lane(db, row["lane"]), row)
            # A derived id is in no parcel and in no lease.
            derived = [id for id in raw if id[0] == _DERIVED]
            for row in db.execute(sql.succeeded_many, (uuid_array(derived),)):
                lane = self.store.lane(db, row["lane"])
                found[raw[row["job"]]] = succeeded_job(lane, row)
            for id in raw.keys() - set(derived):
                if (job := get_job(self.store, db, id)) is not None:
                    found[job.id] = job
        return found

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        if job is not None or after is None:
            return super().history(after, limit, job, kind=kind, before=before)
        check_last(after, job, kind, before)
        until = time.monotonic() + _WAIT_SECONDS
        parameters = {"after": number_of(after), "limit": limit}
        while True:
            with self.store.reading() as db:
                rows = db.execute(sql.history, parameters).fetchall()
                if not rows:
                    self.refuse_ahead(db, after)
                safe = [row for row in rows if row["safe"]]
                if len(safe) == len(rows) or time.monotonic() > until:
                    events = [self.event(db, row) for row in safe]
                    break
            time.sleep(_PAUSE_SECONDS)
        if events:
            flush_wal(self.store)
        return events


def flush_wal(store: PostgresStore) -> None:
    """Make what was read durable.

    Commits of relaxed queues may be lost in a crash; other rows would then get positions that
    the reader has passed already.
    """
    with store.connection() as connection:
        db = PostgresDb(connection)
        written = db.execute(sql.written).fetchone()
        if written is None or written["written"] is None:
            return
        flushed = db.execute(sql.flushed, written).fetchone()
        if flushed and not flushed["flushed"]:
            db.execute(sql.flush)
