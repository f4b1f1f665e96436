"""Receiver: one that is connected to a manager, its credits, and the jobs that it holds until when.

Most jobs are held for as long as the stream is open, or for the receiver's `job_timeout`, so that
the one that was sent first is the first to be overdue; a few have a time of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from penstock.broker.views import WorkerRow
from penstock.job import Job

AnyJob = Job[Any]


class Receiver:
    """Its lock is that of the `Dispatch` it has joined."""

    def __init__(
        self,
        row: WorkerRow,
        send: Callable[[list[AnyJob]], None],
        behind: Callable[[], bool],
        job_timeout: float | None = None,
    ) -> None:
        self.row = row
        self.group = (row.app, tuple(sorted(row.tasks.items())), row.queues)
        self.send = send  # called by `deliver`
        self.behind = behind  # it has yet to read what it was sent
        self.credits = 0
        self.job_timeout = job_timeout
        self.heard_at = time.monotonic()
        # With when each was sent or extended; the first of them is the oldest.
        self.held: dict[str, tuple[AnyJob, float]] = {}
        self._seconds: dict[str, float] = {}  # of those that are held for a time of their own

    def hold(self, jobs: Iterable[AnyJob], seconds: float | None = None) -> None:
        """From now on for so many seconds; None: for `job_timeout`."""
        now = time.monotonic()
        for job in jobs:
            self.drop(job.id)
            self.held[job.id] = (job, now)
            if seconds is not None:
                self._seconds[job.id] = seconds

    def job(self, job_id: str) -> AnyJob | None:
        held = self.held.get(job_id)
        return None if held is None else held[0]

    def drop(self, job_id: str) -> None:
        self.held.pop(job_id, None)
        self._seconds.pop(job_id, None)

    def overdue(self) -> tuple[float, str] | None:
        """When the next job is overdue, and which; None: none ever is."""
        ends = [(self.held[id][1] + seconds, id) for id, seconds in self._seconds.items()]
        if self.job_timeout is not None:
            usual = (id for id in self.held if id not in self._seconds)
            if (first := next(usual, None)) is not None:
                ends.append((self.held[first][1] + self.job_timeout, first))
        return min(ends, default=None)

    def end_overdue(self, job_id: str) -> tuple[AnyJob, float, float]:
        """It is not held any more; since when it was, and for how long it might have been."""
        job, since = self.held[job_id]
        limit = self._seconds.get(job_id, self.job_timeout or 0.0)
        self.drop(job_id)
        return job, since, limit
