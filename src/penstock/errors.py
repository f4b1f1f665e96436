"""What can go wrong, as types that a caller may catch.

Every message is a sentence that names the value and the way out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.run.error_text import LONGEST_HEADLINE, headline


class PenstockError(Exception):
    """The root of everything that Penstock raises on purpose."""


class Refused(PenstockError):
    """The request is wrong as it stands; nothing was written."""


class MissingRight(Refused):
    """This login may not do that in the store; which right it lacks is in the message."""


class StoreFull(PenstockError):
    """The store has no room left; nothing of this call was written, nothing accepted is lost."""


class StoreUnreachable(PenstockError):
    """The store does not answer; what was tried is in the message, without secrets."""


class WrongUrl(StoreUnreachable):
    """The URL names no store, or one that refuses this user or password: waiting does not help."""


class SchemaTooNew(PenstockError):
    """The store was written by a newer Penstock than this one."""


class StaleLease(PenstockError):
    """The job is no longer held by this attempt; what it tried to write was not written."""


class UnknownOutcome(PenstockError):
    """The answer was lost on the way: the jobs may or may not be stored.

    `jobs` holds them as they were sent; `app.enqueue(error.jobs)` is safe, each is stored once.
    """

    def __init__(self, message: str, jobs: Sequence[Any]) -> None:
        super().__init__(message)
        self.jobs = list(jobs)


# Ends that no traceback explains.
_ENDS = {
    "crashed": "the process that ran it died each time it was tried",
    "lost": "the process that ran it died, and its task is at_most_once",
}


class JobFailed(PenstockError):
    """The job ended in failure; `remote_traceback` is what the worker saw, headline first."""

    def __init__(self, job_id: str, reason: str, remote_traceback: str | None) -> None:
        summary = headline(remote_traceback, LONGEST_HEADLINE) or _ENDS.get(reason, "")
        super().__init__(f"job {job_id} failed ({reason}){summary and ': '}{summary}")
        self.job_id = job_id
        self.reason = reason
        self.remote_traceback = remote_traceback


class JobCancelled(PenstockError):
    """The job was cancelled before it could end."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id} was cancelled ({reason})")
        self.job_id = job_id
        self.reason = reason


class ResultGone(PenstockError):
    """The job ended, or was deleted, and its result is not kept any more."""


class RetryLater(PenstockError):
    """Raised by a task: put me back, run me again after this many seconds, count nothing.

    `at` is a moment instead, by the store's clock.
    """

    def __init__(self, after: float = 30, note: str = "", *, at: datetime | None = None) -> None:
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):  # pyright: ignore[reportUnnecessaryIsInstance]  as below
            raise Refused(f"RetryLater(at={at!r}): a datetime with its time zone")
        if not isinstance(after, (int, float)) or not 0 <= after < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
            raise Refused(f"RetryLater(after={after!r}): seconds as a number, 0 or more")
        super().__init__(
            note or (f"run again in {after} s" if at is None else f"run again at {at}")
        )
        self.after = float(after)
        self.at = None if at is None else at.timestamp()
        self.note = note


class ProcessDied(PenstockError):
    """The process of a detached job ended under it: what its `Retry` is asked about."""


class JobTimeout(BaseException):
    """Raised inside a task whose time is up; `except Exception` in user code lets it pass."""


class WaitsForJobs(BaseException):
    """Raised inside a task that waits for jobs that it queued; as JobTimeout."""


class JobInterrupted(BaseException):
    """Raised inside a task that was cancelled, or whose worker must stop now; as JobTimeout."""
