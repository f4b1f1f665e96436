"""Leases of workers: who is alive, who may recover others, and which jobs a worker can run.

Pure: a store reads a worker's row, decides here and writes what this says. Times are those that
leases run in (the store's monotonic time), not times of day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from penstock.broker.views import WorkerRow
from penstock.job import Job, Lane, Outcome, lapsed, unclaimed

MOST_SPARED = 3  # crashes in a row that nobody is known to have caused: the third counts a lapse
MOST_SUSPECTS = 128  # jobs that were spared before, in one claim


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


def recovered(job: Job[Any], started: Collection[str] | None) -> Outcome:
    """What becomes of a job of a dead worker: only one that had begun counts a lapse.

    A mapping says of each that had begun how it ended.
    """
    if started is None:
        return _lapsed_in_silence(job)
    if job.id not in started:
        return unclaimed()
    evidence: Mapping[str, str] = cast("Any", started) if isinstance(started, Mapping) else {}
    return lapsed(evidence.get(job.id))


def recovered_unseen(job: Job[Any], began: Collection[str] | None) -> Outcome:
    """The same if nobody saw the worker die: `began` are the jobs that its last renewal named.

    Another one may have begun since. So it goes back uncounted, but not for ever: of the jobs that
    were held together, the one that kills its process is among those that are spared again. An
    at-most-once job must not begin twice.
    """
    if began is None or job.id in began or job.at_most_once or job.spared + 1 >= MOST_SPARED:
        return _lapsed_in_silence(job)
    return unclaimed(job.spared + 1)


def _lapsed_in_silence(job: Job[Any]) -> Outcome:
    return lapsed(
        f"ProcessDied: worker {job.worker} fell silent and its lease ended: it was killed with "
        "its supervisor, suspended or cut off, or its machine was lost"
    )
