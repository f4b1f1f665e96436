"""Failed attempts, in the log: each is one record of the logger `penstock.worker`.

Made of the outcome, whichever way the job was run: on a thread, on the event loop, in a process, in
a batch, detached. ERROR, or WARNING if the job is tried again. The record has the fields of
`FAILURE` as attributes, and its traceback where a formatter looks for one. Of a task with secret
arguments it says what was raised and where, and nothing of what the error says.

A flood is kept short: of one task and exception so many records a second are whole, the others are
counted, and the count is logged.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from penstock.enqueue.secrets import has_secrets
from penstock.job import CRASH_BUDGET, Fault, Job, Outcome, State
from penstock.operate.why import span
from penstock.run.error_text import exception_in, headline, traceback_in

if TYPE_CHECKING:
    from penstock.app.app import App

WHOLE_PER_SECOND = 50
_WINDOW_SECONDS = 1.0
_DIED = "the process that ran it died"  # which leaves no word

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Failures:
    """Logs the failed attempts of one worker; called by one thread."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._since = 0.0
        self._counts: dict[tuple[str, str], int] = {}  # by task and exception, in this window
        self._worst: dict[tuple[str, str], int] = {}  # the level of those that were left out

    @property
    def due_at(self) -> float:
        """When the count of what was left out is to be logged."""
        return self._since + _WINDOW_SECONDS if self._worst else math.inf

    def tell(self, job: Job[Any], outcome: Outcome) -> None:
        """Log the attempt, if it failed."""
        if outcome.failures <= 0 and outcome.lapses <= 0:
            return
        level = logging.WARNING if _goes_on(job, outcome) else logging.ERROR
        if not log.isEnabledFor(level):
            return
        exception = _exception(outcome)
        kind, now = (job.task, exception or outcome.reason or ""), monotonic()
        if now >= self._since + _WINDOW_SECONDS:
            self.sum_up()
            self._since = now
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > WHOLE_PER_SECOND:
            self._worst[kind] = max(level, self._worst.get(kind, level))
        else:
            log.handle(self._record(level, job, outcome, exception))

    def sum_up(self) -> None:
        """Log how many were left out."""
        for (task, exception), level in self._worst.items():
            more = self._counts[task, exception] - WHOLE_PER_SECOND
            told = {"task": task, "exception": exception, "more": more}
            seconds = max(monotonic() - self._since, _WINDOW_SECONDS)
            log.log(
                level,
                "%d more attempts at %s failed in %.0f s with %s; `penstock find state:failed"
                " task:%s` lists those that were the last",
                more,
                task,
                seconds,
                exception,
                task,
                extra=told,
            )
        self._counts.clear()
        self._worst.clear()

    def _record(
        self, level: int, job: Job[Any], outcome: Outcome, exception: str | None
    ) -> logging.LogRecord:
        fault = outcome.fault or Fault(exception or "")
        task = self._app.task_named(job.task)
        secret = has_secrets(job.body) or (task is not None and bool(task.secret))
        said = None if secret else headline(outcome.error)
        traceback = None if secret else traceback_in(outcome.error) or None
        told = said or " at ".join(filter(None, (exception, fault.place))) or _DIED
        retry_at = (outcome.run_at or outcome.ended_at) if level == logging.WARNING else None
        extra: dict[str, Any] = {
            "task": job.task,
            "job_id": job.id,
            "attempt": job.attempt,
            "queue": job.queue,
            "reason": outcome.reason,
            "exception": exception,
            "place": fault.place,
            "error": _without_class(said, exception),
            "traceback": traceback,
            "retry_at": retry_at,
        }
        again = ""
        if retry_at is not None:
            ended_at = outcome.ended_at or self._app.clock.now()
            again = f"; tried again in {span(retry_at - ended_at)}"
        record = log.makeRecord(
            log.name,
            level,
            __file__,
            0,
            "%s failed: %s (job %s, attempt %d%s)",
            (job.task, told, job.id, job.attempt, again),
            None,
            extra=extra,
        )
        record.exc_text = traceback
        return record


def of_job(job: Job[Any]) -> Outcome | None:
    """The failed attempt that left the job as it is; None if none did."""
    again = job.state is State.READY and job.reason in {"error", "timeout", "crashed"}
    if job.state is not State.FAILED and not again:
        return None
    run_at = job.run_at if again else None
    return Outcome(
        job.state, job.reason, error=job.error, run_at=run_at, failures=1, ended_at=job.ended_at
    )


def _goes_on(job: Job[Any], outcome: Outcome) -> bool:
    """Whether the job is tried again; the store decides on lapses in the same way."""
    if outcome.lapses and (job.at_most_once or job.lapses + outcome.lapses >= CRASH_BUDGET):
        return False
    return outcome.state is State.READY


def _without_class(said: str | None, exception: str | None) -> str | None:
    if said is None or exception is None:
        return said
    return "" if said == exception else said.removeprefix(f"{exception}: ")


def _exception(outcome: Outcome) -> str | None:
    if outcome.fault is not None:
        return outcome.fault.exception
    return exception_in(outcome.error)
