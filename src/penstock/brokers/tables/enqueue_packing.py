"""Pack the jobs of an enqueue into parcels, each id once, and check them, before any statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.broker.checks import check_body, check_job
from penstock.brokers.tables.rows import ids_after, packed_jobs
from penstock.enqueue.ids import from_bytes, is_derived, parse_id, to_bytes
from penstock.flows.flow import Flow, check_flow
from penstock.job import Job, Lane, Parcel, State, pack


def packed(
    jobs: Sequence[Job[Any] | Parcel], flow: Flow | None = None, *, check: bool = True
) -> tuple[list[Parcel], list[Job[Any]]]:
    """Parcels, and the jobs that need a row of their own: also those of `flow` that wait."""
    if flow is not None and check:
        check_flow(flow, jobs)
    waiting: list[Job[Any]] = []
    if flow is not None:
        jobs, waiting = _sorted_out(jobs, flow)
    parcels, singles = pack(_fresh(jobs))
    derived = [parcel for parcel in parcels if is_derived(parcel.id)]
    if derived:  # a derived id has no neighbours to be packed with
        parcels = [parcel for parcel in parcels if not is_derived(parcel.id)]
        unpacked = {parcel.id for parcel in derived}
        singles += [job for job in _fresh(jobs) if isinstance(job, Job) and job.id in unpacked]
    singles += waiting
    if check:
        for parcel in parcels:
            check_body(max(parcel.bodies, key=len))
        for job in singles:
            check_job(job)
    return parcels, singles


def searched_fields(
    parcels: Sequence[Parcel], singles: Sequence[Job[Any]]
) -> dict[Lane, frozenset[str]]:
    """The argument fields that all of these jobs of a lane have indexed, by lane."""
    fields: dict[Lane, frozenset[str]] = {parcel.lane: frozenset() for parcel in parcels}
    for job in singles:
        lane = job.lane
        if lane not in fields:
            fields[lane] = frozenset(job.search)
        elif fields[lane]:
            fields[lane] &= frozenset(job.search)
    return fields


def new_parts(
    first: bytes, bodies: Sequence[bytes], sent: Iterable[tuple[bytes, int]], known: set[str]
) -> list[tuple[bytes, Sequence[bytes]]]:
    """The parts of a parcel that were not sent before; ids of the rest go to `known`."""
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


def _sorted_out(
    jobs: Sequence[Job[Any] | Parcel], flow: Flow
) -> tuple[list[Job[Any] | Parcel], list[Job[Any]]]:
    """The jobs of a flow that are ready, and those that wait."""
    waiting = {job_id for node in flow.nodes if node.waits for job_id in node.ids()}
    if not waiting:
        return list(jobs), []
    ready: list[Job[Any] | Parcel] = []
    later: list[Job[Any]] = []
    for job in jobs:
        if isinstance(job, Parcel) and waiting.isdisjoint(job.ids()):
            ready.append(job)
            continue
        for one in _fresh(_opened(job) if isinstance(job, Parcel) else [job]):
            if isinstance(one, Job) and one.id in waiting:
                later.append(msgspec.structs.replace(one, state=State.WAITING))
            else:
                ready.append(one)
    return ready, later


def _opened(parcel: Parcel) -> list[Job[Any]]:
    raw = to_bytes(parcel.id)
    return list(packed_jobs(parcel.lane, ids_after(raw, len(parcel.bodies)), parcel.bodies))


def _fresh(jobs: Iterable[Job[Any] | Parcel]) -> Iterator[Job[Any] | Parcel]:
    """Each id once; a job value that came from a store is reset to a new job."""
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
    "spared": 0,
    "lease": None,
    "worker": None,
    "claimed_at": None,
    "ended_at": None,
    "reason": None,
    "error": None,
    "result": None,
}
