"""Who spawned whom, readable from both ends.

The job that spawned leaves an event in the history, in the transaction that stores the others; they
name it in a header. Of a parcel only the first job does: 4,096 bodies would be longer for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel, count_jobs

SPAWNED_BY = "spawned_by"  # the header
SPAWNED = "spawned"  # the event
MOST_NAMED = 20  # ids in the event
_Fields = dict[str, msgspec.Raw]


class Spawned(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one attempt spawned: the first ids, and the flow that joins them, if one does."""

    jobs: int
    ids: tuple[str, ...] = ()
    flow: str | None = None


class _Data(msgspec.Struct):
    name: str
    value: Spawned


def with_spawner(
    stored: Iterable[Job[Any] | Parcel], spawner: str
) -> tuple[Job[Any] | Parcel, ...]:
    """The jobs, with a header that names the job that spawned them."""
    return tuple(
        msgspec.structs.replace(part, body=_headed(part.body, spawner))
        if isinstance(part, Job)
        else msgspec.structs.replace(
            part, bodies=[_headed(part.bodies[0], spawner), *part.bodies[1:]]
        )
        for part in stored
    )


def _headed(body: bytes, spawner: str) -> bytes:
    fields = msgspec.json.decode(body, type=_Fields)
    headers = msgspec.json.decode(fields.pop("headers", b"{}"), type=dict[str, str])
    tail = fields.pop("flow", None)  # stays last, see compose
    fields["headers"] = msgspec.Raw(msgspec.json.encode({**headers, SPAWNED_BY: spawner}))
    if tail is not None:
        fields["flow"] = tail
    return msgspec.json.encode(fields)


def spawned_event(outcome: Outcome) -> bytes:
    """The data of the event that the spawning job leaves."""
    ids: list[str] = []
    for part in outcome.spawned:
        if len(ids) < MOST_NAMED:
            ids += [part.id] if isinstance(part, Job) else part.ids()
    flow: Flow | None = outcome.flow
    value = Spawned(
        count_jobs(outcome.spawned), tuple(ids[:MOST_NAMED]), None if flow is None else flow.id
    )
    return msgspec.json.encode({"name": SPAWNED, "value": value})


def spawned_in(data: bytes | None) -> Spawned | None:
    """What an event of the history says was spawned; None if it is about something else."""
    try:
        found = msgspec.json.decode(data or b"", type=_Data)
    except msgspec.MsgspecError:
        return None
    return found.value if found.name == SPAWNED else None


def spawner_in(headers: Mapping[str, Any]) -> str | None:
    """The job that spawned the one with these headers."""
    found = headers.get(SPAWNED_BY)
    return found if isinstance(found, str) else None
