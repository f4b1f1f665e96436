"""What a manager counts of its receivers, by queue: for its metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.job import Job, Outcome, State

MOST_QUEUES = 200
OTHER = "other"  # the queues beyond those
OUTCOMES = ("succeeded", "failed", "again", "cancelled", "stale")
_OUTCOME = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}


class Counters:
    """Since this manager began. Written by the dispatching thread, read by whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self.claims = 0  # calls of the store, with settlements and without
        self.failed_rounds = 0  # the store did not answer
        self.jobs_sent: Counter[str] = Counter()
        self.jobs_not_sent: Counter[str] = Counter()  # claimed and put back, uncounted
        self.ended: Counter[tuple[str, str]] = Counter()  # by queue and outcome

    def _queue(self, queue: str) -> str:
        if queue not in self._queues:
            if len(self._queues) >= MOST_QUEUES:
                return OTHER
            self._queues.add(queue)
        return queue

    def sent(self, jobs: Iterable[Job[Any]]) -> None:
        with self._lock:
            for job in jobs:
                self.jobs_sent[self._queue(job.queue)] += 1

    def not_sent(self, jobs: Iterable[Job[Any]]) -> None:
        with self._lock:
            for job in jobs:
                self.jobs_not_sent[self._queue(job.queue)] += 1

    def settled(self, job: Job[Any], outcome: Outcome, *, applied: bool) -> None:
        how = _OUTCOME.get(outcome.state, "again") if applied else "stale"
        with self._lock:
            self.ended[self._queue(job.queue), how] += 1

    def copy(self) -> tuple[dict[str, int], dict[str, int], dict[tuple[str, str], int]]:
        """Sent, not sent, and ended."""
        with self._lock:
            return dict(self.jobs_sent), dict(self.jobs_not_sent), dict(self.ended)
