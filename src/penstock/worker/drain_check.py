"""Is anything left for a worker to run, now or later? What `--drain` waits for."""

from __future__ import annotations

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.views import Count, WorkerRow
from penstock.job import State

_LOOK_AT = 100


def anything_left(broker: Broker, worker: WorkerRow) -> bool:
    """Whether this worker may still be needed. Called after a claim returned nothing.

    Scheduled jobs count, and so do those that run on other workers, which may be retried. Paused
    ones do not, nor those that only another worker can run, nor those behind a failed one of their
    key.
    """
    return any(_left(broker, worker, count) for count in broker.count())


def _left(broker: Broker, worker: WorkerRow, count: Count) -> bool:
    if count.app != worker.app or count.task not in worker.tasks:
        return False
    if worker.queues is not None and count.queue not in worker.queues:
        return False
    if count.scheduled or count.waiting or count.running:
        return True
    if not count.ready and not count.limited:
        return False
    # Ready, and yet not claimed: perhaps for workers with other tags, or with newer code.
    ready = Filter(task=(count.task,), queue=(count.queue,), app=(count.app,), state=(State.READY,))
    return any(
        job.version <= worker.tasks[count.task]
        and worker.tags.issuperset(job.runs_on)
        and (job.key is None or broker.why(job.id).cause != "stuck")
        for job in broker.find(ready, limit=_LOOK_AT).jobs
    )
