"""Newest first: the order that jobs are found in, by the time each was made.

Most ids hold their time, and sort by it. Derived ones hold none and would stand above all others
for ever: their jobs go by when they were enqueued.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from penstock.enqueue.ids import TICKS, is_derived, parse_id, tick_of, time_text, to_bytes
from penstock.errors import Refused
from penstock.job import Job

DERIVED = to_bytes("ff000000-0000-0000-0000-000000000000")  # all ids from here on
_ABOVE_ALL = b"\xff" * 16  # no id: they have a version


class MadeAt(NamedTuple):
    """Sort key, newest first. Derived ids carry no time, so they sort by `enqueued_at`.

    That time is written as the ids of its tick begin, and sorts above all of them.
    """

    tick: str
    at: float = 0.0
    id: str = ""

    def __str__(self) -> str:
        """As callers hand it back, to go on from there."""
        return f"{self.id}@{self.at!r}" if self.id else self.tick


class Below(NamedTuple):
    """What is older than a job, as stores are asked for it."""

    id: bytes = DERIVED  # ids that hold their time: below this one
    at: float = math.inf  # derived ones: enqueued before, or then and with an id below
    derived: bytes = _ABOVE_ALL

    def holds(self, job: Job[Any]) -> bool:
        """Whether this job is among them."""
        raw = to_bytes(job.id)
        if not is_derived(job.id):
            return raw < self.id
        return (job.enqueued_at, raw) < (self.at, self.derived)


def made(job: Job[Any]) -> MadeAt:
    """When this job was made."""
    if not is_derived(job.id):
        return MadeAt(job.id)
    return MadeAt(time_text(tick_of(job.enqueued_at)) + "-f", job.enqueued_at, job.id)


def below(after: str | None) -> Below:
    """What comes behind the place that a page ended at."""
    if not after:
        return Below()
    text, mark, at = after.partition("@")
    id = parse_id(text)
    if is_derived(id) != bool(mark):
        raise _nowhere(after)
    if not mark:
        return Below(to_bytes(id), _first_time_of(id), bytes(len(DERIVED)))
    try:
        seconds = float(at)
        last = to_bytes(f"{time_text(tick_of(seconds))}-ffff-ffffffffffff")
        return Below(last, seconds, to_bytes(id))
    except (ValueError, OverflowError):
        raise _nowhere(after) from None


def _first_time_of(id: str) -> float:
    """The first moment whose tick is not before that of the id."""
    # An id that somebody else made may have another version, which sorts before the fraction.
    version, fraction = int(id[14], 16), int(id[15:18], 16)
    tick = int(id[:8] + id[9:13], 16) * 4096
    tick += fraction if version == 7 else 4096 * (version > 7)
    at = tick / TICKS
    while tick_of(at) < tick:
        at = math.nextafter(at, math.inf)
    while tick_of(before := math.nextafter(at, -math.inf)) >= tick:
        at = before
    return at


def _nowhere(after: str) -> Refused:
    return Refused(
        f"{after[:80]!r} is no place to go on from: give `after` as the page before had it"
    )
