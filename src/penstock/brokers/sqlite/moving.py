"""Moving buckets out of and into a file: it has one writer, so nobody has to be kept out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from penstock.broker.views import WorkerRow
from penstock.brokers.sqlite.enqueuing import SqliteIntake
from penstock.brokers.sqlite.renewing import SqliteRenewals
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.moving import Moving
from penstock.job import Lane


class SqliteMoving(Moving):
    """Take out and bring in."""

    def __init__(self, store: SqliteStore, intake: SqliteIntake, renewals: SqliteRenewals) -> None:
        super().__init__(store)
        self._intake = intake
        self._renewals = renewals

    def keep_out(self, db: Db) -> None:
        del db

    def in_sql(self, buckets: Collection[int]) -> Mapping[str, Any]:
        digits = [f"{0x800 | bucket:03X}" for bucket in sorted(buckets)]
        return {"buckets": msgspec.json.encode(digits).decode()}

    def put_lanes(self, db: Db, fields: Mapping[Lane, frozenset[str]]) -> None:
        self._intake.put_lanes(db, fields)

    def keep_alive(self, db: Db, worker: WorkerRow) -> None:
        self._renewals.keep_alive(db, worker, None)
