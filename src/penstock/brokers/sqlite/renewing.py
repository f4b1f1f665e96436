"""Renew: the worker rows that hold claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from penstock.broker.values import Renewed
from penstock.broker.views import WorkerRow
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row
from penstock.brokers.tables.recovery import SettleWithin
from penstock.brokers.tables.rows import ASKED
from penstock.brokers.tables.worker_rows import jobs_held
from penstock.enqueue.ids import from_bytes
from penstock.job import put_back


class SqliteRenewals:
    """Renew."""

    def __init__(self, store: SqliteStore, settle_within: SettleWithin) -> None:
        self.store = store
        self.clock = store.clock
        self._settle_within = settle_within

    def keep_alive(self, db: Db, worker: WorkerRow, now: float) -> None:
        """A claim stands for a renewal, written only when the lease is a third over."""
        found = db.execute(sql.worker, (worker.id,)).fetchone()
        if (
            found is None
            or found["gone"]
            or found["boot"] != self.store.boot
            or found["alive_until"] - self.store.lease_time() < worker.lease * 2 / 3
        ):
            self._renew(db, worker, found, now)

    def _renew(
        self, db: Db, worker: WorkerRow, found: Row | None, claimed_at: float | None
    ) -> None:
        lease_time = self.store.lease_time()
        lapsed = (
            found is None
            or found["gone"]
            or found["boot"] != self.store.boot
            or found["alive_until"] <= lease_time
        )
        declared = msgspec.json.encode(
            msgspec.structs.replace(worker, tags=frozenset(sorted(worker.tags)))
        )
        db.execute(
            sql.renew,
            {
                "id": worker.id,
                "boot": self.store.boot,
                "alive_since": lease_time if lapsed or found is None else found["alive_since"],
                "alive_until": lease_time + worker.lease,
                "lease": worker.lease,
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
                found = db.execute(sql.worker, (worker.id,)).fetchone()
                if found is not None and found["gone"]:
                    lapsed.add(worker.id)
                self._renew(db, worker, found, None)
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
