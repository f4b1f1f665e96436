"""New jobs, encoded as the SQL functions of this store take them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.brokers.tables.flow_needs import flow_rows, found_keys, last_of, queued
from penstock.brokers.tables.rows import indexed, lengths_of, run_of, text_of
from penstock.enqueue.ids import from_bytes, time_of, to_bytes
from penstock.flows.flow import Flow
from penstock.job import Job, Lane, Parcel, State

T = TypeVar("T", str, str | None)


class NewJobs(NamedTuple):
    """The jobs of one enqueue: plain ones packed into parcels, the others to be single rows."""

    parcels: list[Parcel]
    singles: list[Job[Any]]
    flow: Flow | None = None

    @property
    def rows(self) -> int:
        """How many jobs these are."""
        return sum(len(parcel.bodies) for parcel in self.parcels) + len(self.singles)

    def ids(self) -> frozenset[str]:
        packed = (job_id for parcel in self.parcels for job_id in parcel.ids())
        return frozenset(packed) | {job.id for job in self.singles}

    def lanes(self) -> set[Lane]:
        return {parcel.lane for parcel in self.parcels} | {job.lane for job in self.singles}


def without_nul(value: T) -> T:
    """NUL, which PostgreSQL cannot store in a text, becomes U+2400 (symbol for null)."""
    return value.replace("\x00", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value


def span_of(first: bytes, count: int) -> tuple[bytes, bytes, bytes]:
    """A parcel's first id, the first id of its run of ids, and its last id."""
    last = int.from_bytes(first[14:], "big") + count - 1
    return first, run_of(first), first[:14] + last.to_bytes(2, "big")


def job_values(singles: Sequence[Job[Any]]) -> list[dict[str, Any]]:
    """The parameter of penstock.enqueue_jobs."""
    values: list[dict[str, Any]] = []
    for job in singles:
        raw = to_bytes(job.id)
        names = [[name, indexed(value)] for name, value in job.tags.items()]
        names += [[f"arg.{name}", indexed(value)] for name, value in job.search.items()]
        unique = job.unique
        values.append(
            {
                "id": job.id,
                "run": from_bytes(run_of(raw)),
                "lane": job.lane.hash,
                "run_at": job.run_at,
                "enqueued_at": time_of(job.id),
                "at_most_once": job.at_most_once,
                "key": without_nul(job.key),
                "unique_key": without_nul(unique.key) if unique else None,
                "unique_until": unique.until if unique else None,
                "unique_seconds": unique.seconds if unique else None,
                "expires_at": job.expires_at,
                "tags": text_of({name: without_nul(value) for name, value in job.tags.items()}),
                "search": text_of({name: without_nul(value) for name, value in job.search.items()}),
                "body": job.body.decode(),
                "names": names or None,
                "state": job.state if job.state is State.WAITING else None,
            }
        )
    return values


def flow_values(flow: Flow) -> dict[str, Any]:
    """The parameter of penstock.enqueue_flow."""
    nodes, needs, members = flow_rows(flow)
    values: dict[bytes, dict[str, Any]] = {
        node["id"]: {**node, "id": from_bytes(node["id"]), "flow": None, "needs": [], "members": []}
        for node in nodes
    }
    for node, _, need in needs:
        values[node]["needs"].append(from_bytes(need))
    for node, _, first, last in members:
        values[node]["members"].append((from_bytes(first), from_bytes(last)))
    return {
        "id": flow.id,
        "name": flow.name,
        "find": text_of(flow.find),
        "found": [from_bytes(key) for key in found_keys(flow)],
        "queued": queued(flow).decode(),
        "state": flow.state.decode(),
        "state_ttl": flow.state_ttl,
        "jobs": flow.jobs,
        "nodes": list(values.values()),
        "last": [from_bytes(node) for node in last_of(flow)],
    }


def parcel_values(parcels: Sequence[Parcel]) -> list[dict[str, Any]]:
    """The parcels in the parameter of penstock.enqueue_joined."""
    values: list[dict[str, Any]] = []
    for parcel in parcels:
        _, run, last = span_of(to_bytes(parcel.id), len(parcel.bodies))
        values.append(
            {
                "id": parcel.id,
                "run": from_bytes(run),
                "last": from_bytes(last),
                "lane": parcel.lane.hash,
                "jobs": len(parcel.bodies),
                "lengths": b64encode(lengths_of(parcel.bodies)).decode(),
                "bodies": b64encode(b"".join(parcel.bodies)).decode(),
            }
        )
    return values
