"""Job values become final when they are first enqueued: from then on their ids and times stay.

Making a job opens nothing, so its id and times may be by a guess, `GUESSED_CLOCK`. When it is first
enqueued the store's clock is known, and if the guess was off by more than `CLOSE_SECONDS` they are
moved by the difference, in the value itself. So is the bucket of a member of a flow, which is that
of the flow's root. The same value enqueued again is the same job.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from penstock.app.clock import GUESSED_CLOCK, AnyClock
from penstock.enqueue.ids import bucket_of, in_bucket, moved_id
from penstock.errors import Refused
from penstock.flows.compose import Given, Jobs, first_id, with_needs
from penstock.job import Job, Parcel

CLOSE_SECONDS = 1.0  # a smaller error is not corrected: somebody may have read the id

_moving = threading.Lock()


class Provisional(msgspec.Struct, frozen=True):
    """The id that a value was made with, before the store's clock was known."""

    id: str
    delayed: bool = False  # run_at came from a delay; else it was given as a moment, and stays


def guessed_clock_error(clock: AnyClock) -> float:
    """By how many seconds provisional times are moved, given the store's clock."""
    off = clock.now() - GUESSED_CLOCK.now()
    return off if abs(off) > CLOSE_SECONDS else 0.0


def make_final(
    named: Sequence[Job[Any] | Jobs[Any] | Parcel],
    seconds: float,
    *,
    flow: bool = False,
    bucket: int | None = None,
) -> None:
    """Move provisional ids and times of these values, and of all they need; mark them as final.

    Members of a flow get the bucket of its root. Jobs are a flow if one needs another, or if `flow`
    is set; `bucket` is that of the job that spawned them.
    """
    if bucket is None and (flow or _joined(named)):
        bucket = next((bucket_of(first_id(each)) for each in named if has_jobs(each)), None)
    if not seconds and bucket is None:
        for source in named:
            if isinstance(source, Job):  # as most; spelt out, because thousands may come at once
                force_setattr(source, "final", source.id)
            else:
                _mark(source)
        return
    with _moving:
        ids: dict[str, str] = {}
        for source in with_needs(named):  # needs first
            if isinstance(source, Parcel):
                continue
            before = source.id
            if source.final != source.id:
                _move(source, seconds, bucket)
                _mark(source)
            elif bucket is not None and bucket_of(source.id) != bucket:
                raise Refused(
                    f"job {source.id} was enqueued before, without this flow; make a new one, and"
                    " enqueue only the flow"
                )
            ids[before] = source.id
            if source.given is not None:
                _set(source, "given", _renamed(source.given, ids))


def _joined(named: Sequence[Job[Any] | Jobs[Any] | Parcel]) -> bool:
    return any(not isinstance(each, Parcel) and each.given is not None for each in named)


def has_jobs(source: Job[Any] | Jobs[Any] | Parcel) -> bool:
    """Whether anything would be stored: a map of nothing has no jobs."""
    return not isinstance(source, Jobs) or bool(source.parts)


def _mark(source: Job[Any] | Jobs[Any] | Parcel) -> None:
    if not isinstance(source, Parcel):
        _set(source, "final", source.id)


def _set(source: Job[Any] | Jobs[Any], field: str, value: Any) -> None:
    if isinstance(source, Job):
        force_setattr(source, field, value)
    else:
        setattr(source, field, value)


def _move(source: Job[Any] | Jobs[Any], seconds: float, bucket: int | None) -> None:
    made = source.provisional
    if made is None or source.id != made.id:  # by the store's clock, or somebody gave it an id
        seconds = 0.0
    if isinstance(source, Jobs):
        for part in source.parts:
            if isinstance(part, Parcel):
                force_setattr(part, "id", _moved(part.id, seconds, bucket))
            else:
                _move(part, seconds, bucket)
    elif seconds:
        if source.provisional.delayed and source.run_at is not None:
            force_setattr(source, "run_at", source.run_at + seconds)
        if source.expires_at is not None:
            force_setattr(source, "expires_at", source.expires_at + seconds)
    _set(source, "id", _moved(source.id, seconds, bucket))


def _moved(id: str, seconds: float, bucket: int | None) -> str:
    id = moved_id(id, seconds) if seconds else id
    return id if bucket is None else in_bucket(id, bucket)


def _renamed(given: Given, ids: Mapping[str, str]) -> Given:
    """With the ids that the jobs of these outputs have by now."""
    made = {need.provisional.id: need.id for need in given.needs if need.provisional is not None}
    now = {**made, **ids}
    fills = tuple(
        tuple(msgspec.structs.replace(fill, node=now.get(fill.node, fill.node)) for fill in each)
        for each in given.fills
    )
    return msgspec.structs.replace(given, fills=fills)
