"""Leases of workers: who is alive, who may recover others, and which jobs a worker can run.

Pure: a store reads a worker's row, decides here and writes what this says. Times are those that
leases run in (the store's monotonic time), not times of day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from penstock.broker.views import WorkerRow
from penstock.job import Job, Lane, Outcome, lapsed, put_back


class WorkerLease(NamedTuple):
    """How long a worker has been alive without a gap, and until when it is believed to be."""

    alive_since: float
    alive_until: float
    seconds: float  # the lease that it asked for

    def alive(self, now: float) -> bool:
        return now < self.alive_until

    def may_recover(self, now: float) -> bool:
        """Whether it was alive throughout its last lease, and may find that others are not.

        Else the first worker back after an outage would recover the jobs of all the others.
        """
        return self.alive(now) and now - self.alive_since >= self.seconds

    def third_over(self, now: float) -> bool:
        """Whether a claim has to renew it as well: claims are too many to do so each time."""
        return self.alive_until - now < self.seconds * 2 / 3


def renewed(before: WorkerLease | None, seconds: float, now: float) -> WorkerLease:
    """The lease after a renewal; `before` is None for a new worker, or one that was recovered."""
    unbroken = before is not None and before.alive(now)
    return WorkerLease(before.alive_since if before and unbroken else now, now + seconds, seconds)


def can_run(worker: WorkerRow, queues: Collection[str] | None, lane: Lane) -> bool:
    """Whether a worker may be handed jobs of a lane, rules aside."""
    return (
        lane.app == worker.app
        and (queues is None or lane.queue in queues)
        and lane.version <= worker.tasks.get(lane.task, -1)
        and worker.tags.issuperset(lane.runs_on)
    )


def recovered(job: Job[None], started: Collection[str] | None) -> Outcome:
    """What becomes of a job of a dead worker: only one that had begun counts a lapse.

    A mapping says of each that had begun how it ended.
    """
    if started is None:
        return lapsed(
            f"ProcessDied: worker {job.worker} fell silent and its lease ended: it was killed with "
            "its supervisor, suspended or cut off, or its machine was lost"
        )
    if job.id not in started:
        return put_back("crashed")
    evidence: Mapping[str, str] = cast("Any", started) if isinstance(started, Mapping) else {}
    return lapsed(evidence.get(job.id))
