"""Logs failed attempts: each is one record of the logger `penstock.worker`.

Made from the outcome, whichever way the job was run: on a thread, on the event loop, in a process,
in a batch, detached. ERROR, or WARNING if the job is retried. A record has the fields of `FAILURE`
(`app/log_lines.py`) as attributes, and its traceback where formatters look for one. For a task with
secret arguments it has the class and the place of the error, never its text.

A flood is cut: for each task and exception, so many records a second are whole; the others are only
counted, and the count is logged.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from penstock.broker.settlement import crash_budget
from penstock.enqueue.secrets import has_secrets
from penstock.job import Fault, Job, Outcome, State
from penstock.operate.time_text import duration_text
from penstock.run.error_text import exception_in, headline, traceback_in

if TYPE_CHECKING:
    from penstock.app.app import App

WHOLE_PER_SECOND = 50
_WINDOW_SECONDS = 1.0
_DIED = "the process that ran it died"  # there is no error text then

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class FailureLog:
    """Logs the failed attempts of one worker; called by one thread."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._since = 0.0
        self._counts: dict[tuple[str, str], int] = {}  # by task and exception, in this window
        self._suppressed: dict[tuple[str, str], int] = {}  # the worst level of those left out

    @property
    def due_at(self) -> float:
        """When `log_suppressed` is due."""
        return self._since + _WINDOW_SECONDS if self._suppressed else math.inf

    def log(self, job: Job[Any], outcome: Outcome) -> None:
        """Log the attempt, if it failed."""
        if outcome.failures <= 0 and outcome.lapses <= 0:
            return
        level = logging.WARNING if _is_retried(job, outcome) else logging.ERROR
        if not log.isEnabledFor(level):
            return
        exception = _exception(outcome)
        kind, now = (job.task, exception or outcome.reason or ""), monotonic()
        if now >= self._since + _WINDOW_SECONDS:
            self.log_suppressed()
            self._since = now
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > WHOLE_PER_SECOND:
            self._suppressed[kind] = max(level, self._suppressed.get(kind, level))
        else:
            log.handle(self._record(level, job, outcome, exception))

    def log_suppressed(self) -> None:
        """Log how many records were left out."""
        for (task, exception), level in self._suppressed.items():
            more = self._counts[task, exception] - WHOLE_PER_SECOND
            seconds = max(monotonic() - self._since, _WINDOW_SECONDS)
            log.log(
                level,
                "%d more attempts at %s failed in %.0f s with %s; not logged one by one. Jobs that"
                " have failed for good: penstock find state:failed task:%s",
                more,
                task,
                seconds,
                exception,
                task,
                extra={"task": task, "exception": exception, "more": more},
            )
        self._counts.clear()
        self._suppressed.clear()

    def _record(
        self, level: int, job: Job[Any], outcome: Outcome, exception: str | None
    ) -> logging.LogRecord:
        fault = outcome.fault or Fault(exception or "")
        task = self._app.task_named(job.task)
        secret = has_secrets(job.body) or (task is not None and bool(task.secret))
        error_line = None if secret else headline(outcome.error)
        traceback = None if secret else traceback_in(outcome.error) or None
        summary = error_line or " at ".join(filter(None, (exception, fault.place))) or _DIED
        retry_at = (outcome.run_at or outcome.ended_at) if level == logging.WARNING else None
        extra: dict[str, Any] = {
            "task": job.task,
            "job_id": job.id,
            "attempt": job.attempt,
            "queue": job.queue,
            "reason": outcome.reason,
            "exception": exception,
            "place": fault.place,
            "error": _without_class(error_line, exception),
            "traceback": traceback,
            "retry_at": retry_at,
        }
        then = "not tried again"
        if retry_at is not None:
            ended_at = outcome.ended_at or self._app.clock.now()
            then = f"tried again in {duration_text(retry_at - ended_at)}"
        record = log.makeRecord(
            log.name,
            level,
            __file__,
            0,
            "%s failed: %s (job %s, attempt %d; %s)",
            (job.task, summary, job.id, job.attempt, then),
            None,
            extra=extra,
        )
        record.exc_text = traceback
        return record


def failed_attempt(job: Job[Any]) -> Outcome | None:
    """The outcome of the failed attempt that left the job as it is; None if none did."""
    retried = job.state is State.READY and job.reason in {"error", "timeout", "crashed"}
    if job.state is not State.FAILED and not retried:
        return None
    run_at = job.run_at if retried else None
    return Outcome(
        job.state, job.reason, error=job.error, run_at=run_at, failures=1, ended_at=job.ended_at
    )


def _is_retried(job: Job[Any], outcome: Outcome) -> bool:
    """Whether the job is retried; the store decides in the same way."""
    if outcome.lapses and (job.at_most_once or job.lapses + outcome.lapses >= crash_budget(job)):
        return False
    return outcome.state is State.READY


def _without_class(error_line: str | None, exception: str | None) -> str | None:
    if error_line is None or exception is None:
        return error_line
    return "" if error_line == exception else error_line.removeprefix(f"{exception}: ")


def _exception(outcome: Outcome) -> str | None:
    if outcome.fault is not None:
        return outcome.fault.exception
    return exception_in(outcome.error)
