"""What arrives with an enqueue: checked, each id once, and packed, before any store is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.brokers.tables.rows import ids_after
from penstock.checks import check_body, check_job
from penstock.ids import from_bytes, parse_id
from penstock.job import Job, Lane, Parcel, State, pack


def packed(jobs: Sequence[Job[Any] | Parcel]) -> tuple[list[Parcel], list[Job[Any]]]:
    """What goes into parcels, and the jobs that need a row of their own; all are checked."""
    parcels, singles = pack(_fresh(jobs))
    derived = [parcel for parcel in parcels if parcel.id.startswith("ff")]
    if derived:  # a derived id has no neighbours to be packed with
        parcels = [parcel for parcel in parcels if not parcel.id.startswith("ff")]
        unpacked = {parcel.id for parcel in derived}
        singles += [job for job in jobs if isinstance(job, Job) and job.id in unpacked]
    for parcel in parcels:
        check_body(max(parcel.bodies, key=len))
    for job in singles:
        check_job(job)
    return parcels, singles


def searched_fields(
    parcels: Sequence[Parcel], singles: Sequence[Job[Any]]
) -> dict[Lane, frozenset[str]]:
    """Of each lane, the argument fields that all of these jobs have indexed."""
    fields: dict[Lane, frozenset[str]] = {parcel.lane: frozenset() for parcel in parcels}
    for job in singles:
        searched = frozenset(job.search)
        lane = job.lane
        fields[lane] = fields.get(lane, searched) & searched
    return fields


def new_parts(
    first: bytes, bodies: Sequence[bytes], sent: Iterable[tuple[bytes, int]], known: set[str]
) -> list[tuple[bytes, Sequence[bytes]]]:
    """What of a parcel is not in the ranges that were sent before; the rest goes to `known`."""
    covered: set[int] = set()
    for raw, jobs in sent:
        start = int.from_bytes(raw[14:], "big")
        covered.update(range(start, start + jobs))
    if not covered:
        return [(first, bodies)]
    parts: list[tuple[bytes, list[bytes]]] = []
    follows = -1
    for raw, body in zip(ids_after(first, len(bodies)), bodies, strict=True):
        number = int.from_bytes(raw[14:], "big")
        if number in covered:
            known.add(from_bytes(raw))
        elif number == follows:
            parts[-1][1].append(body)
            follows += 1
        else:
            parts.append((raw, [body]))
            follows = number + 1
    return list(parts)


def names_of(text: str) -> frozenset[str]:
    """The argument fields that a lane's row names."""
    return frozenset(text.split(",")) - {""}


def _fresh(jobs: Iterable[Job[Any] | Parcel]) -> Iterator[Job[Any] | Parcel]:
    """Each id once; a job value that has been somewhere before starts from nothing."""
    seen: set[str] = set()
    for job in jobs:
        if isinstance(job, Parcel):
            yield job
            continue
        if job.id in seen:
            continue
        seen.add(job.id)
        if len(job.id) != len(_AN_ID):
            parse_id(job.id)  # refuses it
        if job.attempt or job.state is not State.READY:
            job = msgspec.structs.replace(job, state=State.READY, **_NEW)  # noqa: PLW2901
        yield job


_AN_ID = "00000000-0000-7000-8000-000000000000"
_NEW: dict[str, Any] = {
    "attempt": 0,
    "failures": 0,
    "lapses": 0,
    "repeats": 0,
    "lease": None,
    "worker": None,
    "claimed_at": None,
    "ended_at": None,
    "reason": None,
    "error": None,
    "result": None,
}
