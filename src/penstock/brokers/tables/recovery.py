"""Recover: jobs of dead workers become ready again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.worker_rows import expire, jobs_held
from penstock.job import Job, Outcome, lapsed, put_back

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
            if dead is not None:
                gone = [dead]
            elif by is None or self._was_alive(db, by, lease_time):
                parameters = {"boot": self.store.boot, "lease_time": lease_time}
                gone = [row["id"] for row in db.execute(self.store.sql.recover, parameters)]
            else:
                gone = []
            # All at once: leases are locked before the flows that their jobs are in.
            held = [job for worker in gone for job in jobs_held(self.store, db, worker)]
            self._settle_within(change, [(job, _given_up(job, started)) for job in held])
            for worker in gone:
                db.execute(self.store.sql.give_up_worker, {"id": worker, "now": now})
            moved = len(held)
        if moved or change.woken:
            self.store.forget_claimable()
            self.store.notify()
        return moved

    def _was_alive(self, db: Db, worker: str, lease_time: float) -> bool:
        """Whether this worker saw its whole last lease, and so may judge others."""
        found = db.execute(self.store.sql.worker, (worker,)).fetchone()
        return (
            found is not None
            and not found["gone"]
            and found["boot"] == self.store.boot
            and found["alive_until"] > lease_time
            and lease_time - found["alive_since"] >= found["lease"]
        )


def _given_up(job: Job[Any], started: Collection[str] | None) -> Outcome:
    if started is None or job.id in started:
        return lapsed()
    return put_back("crashed")
