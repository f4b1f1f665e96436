"""Signal: jobs that wait for a signal succeed with its value, in one transaction.

Locks are taken as a cancel takes them: flows first, in id order, then the rows. So of a signal, an
expiry and a cancel of one job the first wins.
"""

from __future__ import annotations

import msgspec

from penstock.brokers.tables.change import Change, EventRow
from penstock.brokers.tables.db import TableStore
from penstock.brokers.tables.job_actions import JobActions
from penstock.brokers.tables.rows import job_of, text_of
from penstock.enqueue.ids import to_bytes
from penstock.enqueue.secrets import redact
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG, awaits, check_signal, signal_data, signalled
from penstock.job import Job, State


class Signals:
    """Signal."""

    def __init__(self, store: TableStore, jobs: JobActions) -> None:
        self.store = store
        self.clock = store.clock
        self._jobs = jobs

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        wanted = {"tag": TAG, "name": check_signal(name), "task": WAIT_TASK}
        event_data = signal_data(name, author, reason)
        data = msgspec.json.encode(event_data)
        ended: list[str] = []
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            found = [row["id"] for row in db.execute(self.store.sql.signal, wanted).fetchall()]
            for row in self._jobs.locked_rows(db, found).values():
                job = job_of(self.store.lane(db, row["lane"]), row)
                if awaits(job, name, change.now):
                    self._succeed_at_once(
                        change, signalled(job, value, change.now), row["lane"], data
                    )
                    ended.append(job.id)
            if ended:
                sent = msgspec.json.encode({**event_data, "jobs": len(ended)})
                change.add_event("signal", sent, None, None)
            change.finish()
        change.after_commit()
        return ended

    def _succeed_at_once(self, change: Change, job: Job[None], lane: int, data: bytes) -> None:
        """End a job that no worker ran: its row is deleted, its history row has the result."""
        raw = to_bytes(job.id)
        change.deleted.append((raw,))
        change.tally[lane, State.WAITING, 0] -= 1
        change.member_ended(job.body, good=True)
        change.events += EventRow(
            "attempt",
            change.now,
            job=raw,
            lane=lane,
            attempt=job.attempt,
            failures=job.failures,
            lapses=job.lapses,
            repeats=job.repeats,
            state=job.state,
            key=job.key,
            enqueued_at=job.enqueued_at,
            run_at=job.run_at,
            tags=text_of(job.tags),
            body=redact(job.body),
            result=job.result,
            data=data,
        )
