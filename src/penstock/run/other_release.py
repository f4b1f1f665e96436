"""Arguments that this worker cannot read, while workers of another release may.

In a rolling deploy a new producer may write what an old worker cannot read. Such a job is put back,
uncounted, as long as a worker with other code is alive that takes its task; each time for longer,
and not for ever: arguments that nobody can read must end as failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.worker_lease import can_run
from penstock.errors import PenstockError
from penstock.job import Job, State

if TYPE_CHECKING:
    from penstock.app.app import App

MOST_TIMES = 12
LONGEST_SECONDS = 60.0
_MOST_ROWS = 1000


def seconds_until_next_try(app: App, job: Job[Any]) -> float | None:
    """How long the job is put back for another release; None: there is none, or it had its time."""
    try:
        if not any(
            row.alive and row.code != app.code and can_run(row, row.queues, job.lane)
            for row in app.broker.workers()
        ):
            return None
        rows = app.broker.history(None, _MOST_ROWS, job.id)
    except PenstockError:
        return LONGEST_SECONDS  # the store does not answer: ask again later
    times = sum(row.reason == "unreadable" and row.state is State.READY for row in rows)
    return None if times >= MOST_TIMES else min(LONGEST_SECONDS, 2.0**times)
