"""Recover: jobs of dead workers become ready again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from penstock.broker.settlement import settled
from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import recovered, recovered_unseen
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.worker_rows import expire, jobs_held, lease_in
from penstock.job import Job, Outcome

SettleWithin = Callable[[Change, Sequence[tuple[Job[Any], Outcome]]], list[bool]]


class Recovery:
    """Recover."""

    def __init__(self, store: TableStore, settle_within: SettleWithin) -> None:
        self.store = store
        self.clock = store.clock
        self._settle_within = settle_within

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        self.store.follow()
        now, lease_time = self.clock.now(), self.store.lease_time()
        moved = 0
        with self.store.writing() as db:
            change = Change(self.store, db, now)
            expire(change)
            change.finish()
            pairs: list[tuple[Job[Any], Outcome]] = []
            gone: list[str] = []
            if dead is not None:
                gone = [dead]
                held = jobs_held(self.store, db, dead)
                pairs = [(job, recovered(job, started)) for job in held]
            elif by is None or self._may_recover(db, by, lease_time):
                parameters = {"boot": self.store.boot, "lease_time": lease_time}
                for row in db.execute(self.store.sql.recover, parameters).fetchall():
                    gone.append(row["id"])
                    began = _began(row["declared"])
                    held = jobs_held(self.store, db, row["id"])
                    pairs += [(job, recovered_unseen(job, began)) for job in held]
            # All at once: leases are locked before the flows that their jobs are in.
            accepted = self._settle_within(change, pairs)
            change.unreported += [
                settled(job, outcome, now, cancelled=False)
                for (job, outcome), fresh in zip(pairs, accepted, strict=True)
                if fresh and outcome.lapses
            ]
            for worker in gone:
                db.execute(self.store.sql.give_up_worker, {"id": worker, "now": now})
            moved = len(pairs)
        if moved or change.woken:
            self.store.forget_claimable()
            self.store.notify()
        change.report_ends()
        return moved

    def _may_recover(self, db: Db, worker: str, lease_time: float) -> bool:
        row = db.execute(self.store.sql.worker, (worker,)).fetchone()
        lease = lease_in(row, self.store.boot)
        return lease is not None and lease.may_recover(lease_time)


def _began(declared: str | None) -> Collection[str] | None:
    """The jobs that a worker's last renewal named as begun; none without a row, None if damaged."""
    if declared is None:
        return ()
    try:
        return msgspec.json.decode(declared, type=WorkerRow).began
    except msgspec.DecodeError:
        return None
