"""Job values that were made before the store's clock was known.

Making a job opens nothing, so its id and times are by a guess, `GUESSED_CLOCK`. When it is first
enqueued the store's clock is known, and if the guess was off by more than `CLOSE_SECONDS` they are
moved by the difference, in the value itself: from then on they are final, and the same value
enqueued again is the same job.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from penstock.app.clock import GUESSED_CLOCK, AnyClock
from penstock.enqueue.ids import moved_id
from penstock.flows.compose import Given, Jobs, gathered
from penstock.job import Job, Parcel

CLOSE_SECONDS = 1.0  # so far off no id need change that somebody may have read

_moving = threading.Lock()


class Provisional(msgspec.Struct, frozen=True):
    """What of a value is to be moved, as it was made."""

    id: str
    delayed: bool = False  # run_at was a delay; else it was said as a moment, and stays


def guess_was_off(clock: AnyClock) -> float:
    """The seconds that provisional times are moved by, now that this is the store's clock."""
    off = clock.now() - GUESSED_CLOCK.now()
    return off if abs(off) > CLOSE_SECONDS else 0.0


def make_final(named: Sequence[Job[Any] | Jobs[Any] | Parcel], seconds: float) -> None:
    """Move what is provisional among these values and all that they need."""
    with _moving:
        for source in gathered(named):  # needs first
            if isinstance(source, Jobs):
                _move_all(source, seconds)
            elif isinstance(source, Job):
                _move(source, seconds)
            if not isinstance(source, Parcel) and source.given is not None:
                given = _renamed(source.given)
                if isinstance(source, Jobs):
                    source.given = given
                else:
                    force_setattr(source, "given", given)


def _move(job: Job[Any], seconds: float) -> None:
    made = job.provisional
    if made is None or job.id != made.id:  # it is final, or somebody gave it an id
        return
    if made.delayed and job.run_at is not None:
        force_setattr(job, "run_at", job.run_at + seconds)
    if job.expires_at is not None:
        force_setattr(job, "expires_at", job.expires_at + seconds)
    force_setattr(job, "id", moved_id(job.id, seconds))


def _move_all(jobs: Jobs[Any], seconds: float) -> None:
    if jobs.provisional is None or jobs.id != jobs.provisional.id:
        return
    for part in jobs.parts:
        if isinstance(part, Parcel):
            force_setattr(part, "id", moved_id(part.id, seconds))
        else:
            _move(part, seconds)
    jobs.id = moved_id(jobs.id, seconds)


def _renamed(given: Given) -> Given:
    """With the outputs under the ids that those jobs have by now."""
    ids = {need.provisional.id: need.id for need in given.needs if need.provisional is not None}
    fills = tuple(
        tuple(msgspec.structs.replace(fill, node=ids.get(fill.node, fill.node)) for fill in each)
        for each in given.fills
    )
    return msgspec.structs.replace(given, fills=fills)
