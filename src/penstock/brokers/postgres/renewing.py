"""Renew: one call for all children of a supervisor; and how long a worker may only listen.

It has a short deadline: a heartbeat that waits for a line that is dead is none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from penstock.broker.values import Renewed
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.binary_arrays import floats, floats_or_none
from penstock.brokers.postgres.pruning import PostgresPruning
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb
from penstock.brokers.tables.change import Change
from penstock.enqueue.ids import from_bytes
from penstock.job import put_back
from penstock.rules.rule import Rule


class PostgresRenewing(PostgresPruning):
    """Renew."""

    @property
    def poll_seconds(self) -> float:
        return self.store.ear.poll_seconds

    def rules(self) -> list[Rule]:
        # One statement: a worker that cannot hear of rules reads them before every start.
        with self.store.lend(self.store.work_seconds) as connection:
            return self._rules_in_force(PostgresDb(connection), self.clock.now())

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        with self.store.lend(self.store.work_seconds) as connection:
            if holding is None:
                return self._renew_all(PostgresDb(connection), workers)
            with self.store.transaction(connection, durable=False) as db:
                lapsed = self._renew_all(db, workers).lapsed
                strays = [
                    job
                    for worker in workers
                    for job in self._held(db, worker.id)
                    if job.id not in holding
                ]
                change = Change(self.store, db, self.clock.now())
                self._settle(change, [(job, put_back("stray")) for job in strays])
                cancelled = self._renew_all(db, workers).cancelled
        self._tell(change)
        return Renewed(cancelled, lapsed)

    def _renew_all(self, db: PostgresDb, workers: Sequence[WorkerRow]) -> Renewed:
        values = (
            [worker.id for worker in workers],
            floats([worker.lease for worker in workers]),
            floats_or_none([worker.claimed_at for worker in workers]),
            [msgspec.json.encode(worker).decode() for worker in workers],
            self.store.lease_time(),
        )
        rows = db.execute(sql.renew, values).fetchall()
        return Renewed(
            frozenset(from_bytes(row["cancelled"]) for row in rows if row["cancelled"]),
            frozenset(row["lapsed"] for row in rows if row["lapsed"]),
        )
