"""Tags that jobs have from the job that made them: its id, and its correlation id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.job import CORRELATION, PARENT, Job, Parcel
from penstock.run.current import BATCH, CURRENT


def inherited_tags(
    jobs: Sequence[Job[Any] | Parcel], *, flow: bool = False
) -> Sequence[Job[Any] | Parcel]:
    """The jobs as they are stored: tagged by the running job, if it has tags to hand on.

    The tree of a detached job goes by the tag of its id, which parcels do not carry; a correlation
    id goes to every job, parcels are opened for it. In a `flow` that is stored, the correlation id
    of one job is that of all.
    """
    batch, current = BATCH.get(), CURRENT.get()
    tags: dict[str, str] = {}
    if current is not None and current.job.tags and not batch:
        job = current.job
        if job.detached or PARENT in job.tags:
            tags[PARENT] = job.id
    correlation = {each.job.tags.get(CORRELATION) for each in batch or (current,) if each}
    if flow and correlation in (set(), {None}):
        found = (each.tags.get(CORRELATION) for each in jobs if isinstance(each, Job))
        correlation = {next(filter(None, found), None)}
    [carried] = correlation if len(correlation) == 1 else {None}
    if carried is None:
        return jobs if not tags else [_tagged(each, tags, None) for each in jobs]
    opened = (
        job for each in jobs for job in (_opened(each) if isinstance(each, Parcel) else [each])
    )
    return [_tagged(job, tags, carried) for job in opened]


def _tagged(
    part: Job[Any] | Parcel, tags: dict[str, str], correlation: str | None
) -> Job[Any] | Parcel:
    if isinstance(part, Parcel):
        return part
    own = {} if correlation is None else {CORRELATION: correlation}
    return msgspec.structs.replace(part, tags={**own, **part.tags, **tags})


def _opened(parcel: Parcel) -> list[Job[Any]]:
    """The jobs of a parcel, which carries no tags."""
    lane = parcel.lane
    return [
        Job(
            task=lane.task,
            body=body,
            id=id,
            queue=lane.queue,
            version=lane.version,
            priority=lane.priority,
            runs_on=lane.runs_on,
            app=lane.app,
        )
        for id, body in zip(parcel.ids(), parcel.bodies, strict=True)
    ]
