"""Hooks for ends that no call of a task sees: crashed, expired, cancelled before it ran.

The store reports them to the process whose call ended the job (`Traits.ended`). That may be in the
middle of a worker's loop, or in a supervisor, so hooks are called on a thread of their own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.job import Job, Outcome, State

if TYPE_CHECKING:
    from penstock.app.app import App

MOST_WAITING = 10_000
_LOOK_SECONDS = 0.01

log = logging.getLogger("penstock")


class EndHooks:
    """Calls the hooks of one app, in order, on a thread that starts when it is first needed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ends: queue.Queue[tuple[str, Job[Any], Outcome]] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def report(self, job: Job[Any]) -> None:
        """A job of any program ended, or is ready again after a crash; it is as it stands now."""
        kind = _kind(job)
        if not self._app.hooks.get(kind) or job.app != self._app.name:
            return
        outcome = Outcome(
            job.state,
            job.reason,
            error=job.error,
            run_at=job.run_at if job.state is State.READY else None,
            lapses=int(kind == "crashed"),
            ended_at=job.ended_at,
        )
        self.call(kind, job, outcome)

    def call(self, kind: str, job: Job[Any], outcome: Outcome) -> None:
        """Have the hooks of this kind called soon."""
        if not self._app.hooks.get(kind):
            return
        try:
            self._ends.put_nowait((kind, job, outcome))
        except queue.Full:
            log.error(  # noqa: TRY400
                "job %s: its hooks for %s are not called: %d calls wait already",
                job.id,
                kind,
                MOST_WAITING,
            )
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-hooks", daemon=True
                )
                self._thread.start()

    def cancelled(self, job: Job[Any]) -> tuple[Job[Any], Outcome]:
        """A claimed job that is not started because it was cancelled, and its outcome."""
        outcome = Outcome(State.CANCELLED, "cancelled")
        self.call("cancelled", job, outcome)
        return job, outcome

    def wait(self, seconds: float) -> None:
        """Wait until all were called, or so long."""
        until = time.monotonic() + seconds
        while self._ends.unfinished_tasks and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)

    def _run(self) -> None:
        from penstock.run.attempt import fire

        while True:
            kind, job, outcome = self._ends.get()
            try:
                fire(self._app, kind, job, outcome)
            finally:
                self._ends.task_done()


def _kind(job: Job[Any]) -> str:
    if job.state is State.CANCELLED:
        return "expired" if job.reason == "expired" else "cancelled"
    return "crashed"
