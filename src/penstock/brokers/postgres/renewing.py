"""Renew: one call for all children of a supervisor.

Its deadline is short: on a dead connection, the heartbeat must try another one within the lease.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from penstock.broker.values import Renewed
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.binary_arrays import float8_array, float8_array_or_null
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.recovery import SettleWithin
from penstock.brokers.tables.worker_rows import jobs_held
from penstock.enqueue.ids import from_bytes
from penstock.job import put_back


class PostgresRenewals:
    """Renew, and put back what the workers do not hold."""

    def __init__(self, store: PostgresStore, settle_within: SettleWithin) -> None:
        self.store = store
        self.clock = store.clock
        self._settle_within = settle_within

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        with self.store.connection(self.store.work_seconds) as connection:
            if holding is None:
                return self._renew_all(PostgresDb(connection), workers)
            with self.store.transaction(connection, durable=False) as db:
                lapsed = self._renew_all(db, workers).lapsed
                strays = [
                    job
                    for worker in workers
                    for job in jobs_held(self.store, db, worker.id)
                    if job.id not in holding
                ]
                change = Change(self.store, db, self.clock.now())
                self._settle_within(change, [(job, put_back("stray")) for job in strays])
                cancelled = self._renew_all(db, workers).cancelled
        change.after_commit()
        return Renewed(cancelled, lapsed)

    def keep_alive(self, db: Db, worker: WorkerRow) -> None:
        """Within a transaction."""
        self._renew_all(db, [worker])

    def _renew_all(self, db: Db, workers: Sequence[WorkerRow]) -> Renewed:
        values = (
            [worker.id for worker in workers],
            float8_array([worker.lease for worker in workers]),
            float8_array_or_null([worker.claimed_at for worker in workers]),
            [msgspec.json.encode(worker).decode() for worker in workers],
            self.store.lease_time(),
        )
        rows = db.execute(sql.renew, values).fetchall()
        return Renewed(
            frozenset(from_bytes(row["cancelled"]) for row in rows if row["cancelled"]),
            frozenset(row["lapsed"] for row in rows if row["lapsed"]),
        )
