"""The containers of the memory broker: ready jobs of a lane, unique keys, workers. None locks."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple

from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import WorkerLease
from penstock.job import Job, Lane

Place = tuple[float, str]


def lane_of(job: Job[Any]) -> Lane:
    """The job's lane; the order in which it names its tags makes no difference."""
    tags = tuple(sorted(job.runs_on))
    return Lane(job.queue, job.task, job.version, job.priority, tags, job.app)


class WaitingLine:
    """The ready jobs of one lane, first in, first out by the time they are due.

    Jobs that were enqueued without a time stand apart: they are due whatever the clock says.
    """

    def __init__(self) -> None:
        self._at_once: list[Place] = []
        self._timed: list[Place] = []

    def __len__(self) -> int:
        return len(self._at_once) + len(self._timed)

    def add(self, job: Job[Any]) -> None:
        jobs, place = self._place(job)
        insort(jobs, place)

    def remove(self, job: Job[Any]) -> None:
        jobs, place = self._place(job)
        del jobs[bisect_left(jobs, place)]

    def head(self, now: float) -> Place | None:
        """The first job that is due."""
        first = self._at_once[:1]
        if self._timed and self._timed[0][0] <= now:
            first.append(self._timed[0])
        return min(first, default=None)

    def next_due(self, now: float) -> float | None:
        """When the first job that is not due yet will be."""
        place = bisect_left(self._timed, (now, "\uffff"))
        return self._timed[place][0] if place < len(self._timed) else None

    def due(self, now: float) -> Iterator[Place]:
        """The jobs that are due now, first in, first out."""
        timed = self._timed[: bisect_left(self._timed, (now, "\uffff"))]
        return heapq.merge(self._at_once.copy(), timed)

    def ahead_of(self, job: Job[Any], now: float) -> int:
        """How many due jobs come before this one."""
        _, place = self._place(job)
        timed = bisect_left(self._timed, min(place, (now, "\uffff")))
        return bisect_left(self._at_once, place) + timed

    def _place(self, job: Job[Any]) -> tuple[list[Place], Place]:
        if job.run_at is None:
            return self._at_once, (job.enqueued_at, job.id)
        return self._timed, (job.run_at, job.id)


class UniqueHolder(NamedTuple):
    """The job that holds a unique key, and how long."""

    job: str
    until: str
    ends_at: float | None


class UniqueKeys:
    """Unique keys, each with the job that holds it."""

    def __init__(self) -> None:
        self.standing: MutableMapping[str, UniqueHolder] = {}

    def holder(self, key: str, now: float) -> str | None:
        standing = self.standing.get(key)
        if standing is None or (standing.ends_at is not None and standing.ends_at <= now):
            return None
        return standing.job

    def take(self, job: Job[Any], now: float) -> None:
        if unique := job.unique:
            ends_at = None if unique.seconds is None else now + unique.seconds
            self.standing[unique.key] = UniqueHolder(job.id, unique.until, ends_at)

    def release(self, job: Job[Any], *scopes: str) -> None:
        """Let go of the job's key, if it holds it in one of these scopes."""
        standing = self.standing.get(job.unique.key) if job.unique else None
        if job.unique and standing and standing.job == job.id and standing.until in scopes:
            del self.standing[job.unique.key]


class RegisteredWorker(NamedTuple):
    """A worker row, with its lease on the monotonic clock."""

    row: WorkerRow
    lease: WorkerLease


class PublishedWrite(NamedTuple):
    """A committed write, or the last one of a stream."""

    jobs: int
    at: float
    token: str
    epoch: int
