"""Moving buckets out of and into a database, while others claim, settle and recover.

Writes that were planned with a map hold it until they are committed (`hold_map`), claims hold a
lock of their own; both are kept out. What else changes jobs begins with their lease or their row,
which are locked here in the order in which jobs go from one to the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.renewing import PostgresRenewals
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresStore
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.moving import Moving
from penstock.errors import Refused
from penstock.job import Lane


class PostgresMoving(Moving):
    """Take out and bring in."""

    def __init__(self, store: PostgresStore, renewals: PostgresRenewals) -> None:
        super().__init__(store)
        self._renewals = renewals

    def keep_out(self, db: Db) -> None:
        db.execute(sql.change_map)
        db.execute(sql.keep_claims_out)

    def check_leaving(self, db: Db) -> None:
        attached = db.execute(sql.attached_tables).fetchone()
        if attached is not None:
            raise Refused(
                f"table {attached['name']} is a queue by triggers of the database, which know "
                "nothing of shards: take them off before buckets leave (penstock attach TABLE "
                "--detach)"
            )

    def in_sql(self, buckets: Collection[int]) -> Mapping[str, Any]:
        return {"buckets": [f"{0x800 | bucket:03x}" for bucket in sorted(buckets)]}

    def put_lanes(self, db: Db, fields: Mapping[Lane, frozenset[str]]) -> None:
        rows = [
            {
                "hash": lane.hash,
                "app": lane.app,
                "queue": lane.queue,
                "task": lane.task,
                "version": lane.version,
                "priority": lane.priority,
                "runs_on": ",".join(lane.runs_on),
                "search": ",".join(sorted(searched)),
            }
            for lane, searched in fields.items()
        ]
        if rows:
            db.executemany(sql.put_lane, sorted(rows, key=lambda row: row["hash"]))

    def keep_alive(self, db: Db, worker: WorkerRow) -> None:
        self._renewals.keep_alive(db, worker)
