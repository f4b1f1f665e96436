"""What claims, renewals and recovery share: rules in force, jobs held, jobs that expired."""

from __future__ import annotations

from typing import Any

from penstock.broker.settlement import cancelled
from penstock.broker.worker_lease import WorkerLease
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.flow_needs import lock_flows, place_of
from penstock.brokers.tables.rows import job_of, leased_jobs, moved, rule_of
from penstock.job import Job, State
from penstock.rules.rule import Rule


def rules_in_force(store: TableStore, db: Db, now: float) -> list[Rule]:
    return [rule_of(row) for row in db.execute(store.sql.rules, (now,))]


def jobs_held(store: TableStore, db: Db, worker: str) -> list[Job[Any]]:
    """All jobs that a worker holds."""
    jobs = [
        job
        for row in db.execute(store.sql.leases, {"worker": worker}).fetchall()
        for _, job in leased_jobs(store.lane(db, row["lane"]), row)
    ]
    jobs += [
        job_of(store.lane(db, row["lane"]), row)
        for row in db.execute(store.sql.held_by, (worker,)).fetchall()
    ]
    return jobs


def expire(change: Change) -> None:
    """Cancel jobs that were not started in time."""
    db, sql, now = change.db, change.sql, {"now": change.now}
    rows = list(db.execute(sql.expire, now).fetchall())
    late = db.execute(sql.expire_waiting, now).fetchall()
    if late:
        lock_flows(db, sql, filter(None, (place_of(row["body"]) for row in late)))
        locked = db.each(sql.locked_row, [(raw,) for raw in sorted(row["id"] for row in late)])
        rows += [row for row in locked if row is not None and row["state"] == State.WAITING]
    for row in rows:
        ended = cancel_row(change, row, "expired")
        change.add_event("cancel", b"{}", ended, row["lane"])
        change.unreported.append(ended)
    if rows:
        change.finish()  # what is claimed next must not be among them
        if change.woken:
            change.store.forget_claimable()


def cancel_row(change: Change, row: Row, reason: str) -> Job[Any]:
    """A row that is not running becomes cancelled."""
    job = job_of(change.store.lane(change.db, row["lane"]), row)
    ended = cancelled(job, reason, change.now)
    change.tally[row["lane"], job.state, row["minute"]] -= 1
    change.tally[row["lane"], State.CANCELLED, 0] += 1
    change.free(job, row["id"], "ended")
    change.free(job, row["id"], "started")
    change.member_ended(job.body, good=False)
    change.moved.append(moved(ended, 0))
    return ended


def lease_in(row: Row | None, boot: str) -> WorkerLease | None:
    """The lease in a worker's row; None if it was recovered, or is of another boot."""
    if row is None or row["gone"] or row["boot"] != boot:
        return None
    return WorkerLease(row["alive_since"], row["alive_until"], row["lease"])
