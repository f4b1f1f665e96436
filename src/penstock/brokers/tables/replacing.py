"""Replace: a job takes the place of the one that holds its unique key, in one transaction."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.settlement import REPLACED, may_be_replaced
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.rows import job_of
from penstock.brokers.tables.worker_rows import cancel_row
from penstock.job import Job


def take_place(change: Change, job: Job[Any], holder: bytes) -> Job[Any] | None:
    """The job as it takes the place of the holder, which ends; None if that was begun.

    Without a time of its own it has that of the holder. The key is free afterwards.
    """
    row = change.db.execute(change.sql.locked_row, (holder,)).fetchone()
    if row is None or not may_be_replaced(job_of(change.store.lane(change.db, row["lane"]), row)):
        return None
    ended = cancel_row(change, row, REPLACED)
    change.moved[-1]["keep_until"] = change.now
    change.add_event("cancel", b"{}", ended, row["lane"])
    change.write_places()
    return job if job.run_at is not None else msgspec.structs.replace(job, run_at=row["run_at"])
