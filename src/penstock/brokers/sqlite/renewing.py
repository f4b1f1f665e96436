"""Renew: the worker rows that hold claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from penstock.broker.values import Renewed
from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import WorkerLease, renewed
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.recovery import SettleWithin
from penstock.brokers.tables.rows import ASKED
from penstock.brokers.tables.worker_rows import jobs_held, lease_in
from penstock.enqueue.ids import from_bytes
from penstock.job import put_back


class SqliteRenewals:
    """Renew."""

    def __init__(self, store: SqliteStore, settle_within: SettleWithin) -> None:
        self.store = store
        self.clock = store.clock
        self._settle_within = settle_within

    def keep_alive(self, db: Db, worker: WorkerRow, now: float | None) -> None:
        """A claim stands for a renewal, written only when the lease is a third over."""
        lease = lease_in(db.execute(sql.worker, (worker.id,)).fetchone(), self.store.boot)
        if lease is None or lease.third_over(self.store.lease_time()):
            self._renew(db, worker, lease, now)

    def _renew(
        self, db: Db, worker: WorkerRow, before: WorkerLease | None, claimed_at: float | None
    ) -> None:
        lease = renewed(before, worker.lease, self.store.lease_time())
        declared = msgspec.json.encode(
            msgspec.structs.replace(worker, tags=frozenset(sorted(worker.tags)))
        )
        db.execute(
            sql.renew,
            {
                "id": worker.id,
                "boot": self.store.boot,
                "alive_since": lease.alive_since,
                "alive_until": lease.alive_until,
                "lease": lease.seconds,
                "claimed_at": worker.claimed_at if claimed_at is None else claimed_at,
                "declared": declared.decode(),
            },
        )

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        cancelled: set[str] = set()
        lapsed: set[str] = set()
        self.store.follow()
        changes: list[Change] = []
        with self.store.writing(durable=False) as db:
            for worker in sorted(workers, key=lambda worker: worker.id):
                row = db.execute(sql.worker, (worker.id,)).fetchone()
                if row is not None and row["gone"]:
                    lapsed.add(worker.id)
                self._renew(db, worker, lease_in(row, self.store.boot), None)
                if holding is not None:
                    strays = [
                        job for job in jobs_held(self.store, db, worker.id) if job.id not in holding
                    ]
                    changes.append(Change(self.store, db, self.clock.now()))
                    self._settle_within(changes[-1], [(job, put_back("stray")) for job in strays])
                for row in db.execute(sql.cancelled_rows, (worker.id,)):
                    cancelled.add(from_bytes(row["id"]))
                for row in db.execute(sql.leases, {"worker": worker.id}):
                    cancelled.update(
                        from_bytes(row["ids"][offset * 16 : offset * 16 + 16])
                        for offset, mark in enumerate(row["marks"])
                        if mark == ASKED
                    )
        for change in changes:
            change.after_commit()
        return Renewed(frozenset(cancelled), frozenset(lapsed))
