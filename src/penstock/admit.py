"""What a store takes in, and what it refuses before anything is written.

Every refusal names the job, the value and what would be right.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from penstock.errors import Refused
from penstock.ids import parse_id, time_of
from penstock.job import Job

MOST_BYTES = 256 * 1024
MOST_CHARACTERS = 200
MOST_AHEAD = 60.0
PRIORITIES = range(-100, 101)
_SCOPES = ("started", "ended", "time")


def admit(job: Job[Any], now: float, retention: float) -> None:
    """Raise Refused if this job cannot be stored as it stands."""
    _check_id(job.id, now, retention)
    for word, name in (
        ("queue", job.queue),
        ("task", job.task),
        *(("tag in runs_on", tag) for tag in job.runs_on),
    ):
        _check_name(job.id, word, name)
    if job.priority not in PRIORITIES:
        raise Refused(f"job {job.id}: priority {job.priority!r} is not between -100 and 100")
    if not 0 <= job.version < 2**31:
        raise Refused(f"job {job.id}: version {job.version!r} is not a small positive number")
    if len(job.body) > MOST_BYTES:
        raise Refused(
            f"job {job.id}: its arguments take {len(job.body)} bytes, more than {MOST_BYTES}; "
            "store them elsewhere and hand over where"
        )
    for word, time in (("run_at", job.run_at), ("expires_at", job.expires_at)):
        if time is not None and not math.isfinite(time):
            raise Refused(f"job {job.id}: {word} {time!r} is not a time")
    if job.unique is not None:
        if job.unique.until not in _SCOPES:
            raise Refused(
                f"job {job.id}: unique until {job.unique.until!r} is not one of "
                f"{', '.join(_SCOPES)}"
            )
        if job.unique.until == "time" and job.unique.seconds is None:
            raise Refused(f"job {job.id}: unique until 'time' needs to know for how many seconds")


def _check_id(job_id: str, now: float, retention: float) -> None:
    if parse_id(job_id) != job_id:
        raise Refused(f"{job_id!r} is not a job id in its usual form, {parse_id(job_id)}")
    made_at = time_of(job_id)
    if made_at is None:
        return
    if made_at < now - retention:
        raise Refused(
            f"job {job_id} was made {(now - made_at) / 86400:.1f} days ago: older than what is "
            "remembered here, so that it may have run already; make a new job"
        )
    if made_at > now + MOST_AHEAD:
        raise Refused(
            f"job {job_id} was made {made_at - now:.0f} s ahead of the store's clock: set the "
            "clock of the machine that made it"
        )


def _check_name(job_id: str, word: str, name: str) -> None:
    if not 0 < len(name) <= MOST_CHARACTERS:
        raise Refused(
            f"job {job_id}: {word} {name!r} must have 1 to {MOST_CHARACTERS} characters, "
            f"not {len(name)}"
        )
    # Cc: control characters, NUL among them; Cs: halves of characters, which no file can hold.
    if not name.isascii() or not name.isprintable():
        for character in name:
            if unicodedata.category(character) in {"Cc", "Cs"}:
                raise Refused(f"job {job_id}: {word} {name!r} has a control character in it")
