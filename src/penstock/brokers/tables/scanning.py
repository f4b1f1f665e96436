"""Bulk reading, as far as the stores in tables do it in the same way.

A slice of jobs is a span of ids, and all places of that span are read in one transaction: a job
that moves meanwhile is neither missed nor met twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.broker.slice import Selection, Slice
from penstock.brokers.arrow import selected_job
from penstock.brokers.positions import FARTHEST_ID, id_number, slices_between
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.rows import contents, leased_jobs, ready_jobs, run_of
from penstock.enqueue.ids import to_bytes
from penstock.job import ENDED, Job, State


def parameters_of(store: TableStore, db: Db, part: Slice) -> dict[str, Any]:
    """What the statements of a scan are told, beside the ends of the slice."""
    selection = part.selection
    lanes = None
    if (selection.queue or selection.task) and selection.table != "gauges":
        lanes = [
            row["hash"]
            for row in db.execute(store.sql.lanes)
            if (not selection.queue or row["queue"] in selection.queue)
            and (not selection.task or row["task"] in selection.task)
        ]
    states = sorted(selection.state) or None
    return {
        "kind": selection.kind,
        "lanes": None if lanes is None else msgspec.json.encode(lanes).decode(),
        "states": None if states is None else msgspec.json.encode(states).decode(),
        "since": selection.since,
        "before": selection.until,
        "bodies": selection.bodies,
    }


def wanted_states(selection: Selection) -> set[State]:
    """The states that jobs of this selection can be in."""
    every = ENDED if selection.table == "results" else frozenset(State)
    return {state for state in every if not selection.state or state in selection.state}


def packed_in(store: TableStore, db: Db, part: Slice) -> Iterator[Job[Any]]:
    """The jobs of a slice that are in parcels, and those that run out of them."""
    wanted, span = wanted_states(part.selection), id_span(part)
    after, until = span["after"], span["until"]
    if State.READY in wanted:
        runs = {"first": run_of(after), "until": until}
        for row in db.execute(store.sql.scan_parcels, runs):
            lane = store.lane(db, row["lane"])
            ids, bodies = contents(row["id"], row["jobs"], row["lengths"], row["bodies"])
            inside = [pair for pair in zip(ids, bodies, strict=True) if after < pair[0] <= until]
            jobs = ready_jobs(lane, row, [raw for raw, _ in inside], [body for _, body in inside])
            yield from (job for job in jobs if selected_job(part.selection, job))
    if State.RUNNING in wanted:
        for row in db.execute(store.sql.leases, {"worker": None}).fetchall():
            for _, job in leased_jobs(store.lane(db, row["lane"]), row):
                if after < to_bytes(job.id) <= until and selected_job(part.selection, job):
                    yield job


def job_slices(store: TableStore, selection: Selection, at_most: int) -> list[Slice]:
    """Jobs by their ids; those of a flow lie close together."""
    after, until = 0, FARTHEST_ID
    with store.reading() as db:
        if selection.flow is not None or selection.node is not None:
            names = {
                "flow": None if selection.flow is None else to_bytes(selection.flow),
                "node": None if selection.node is None else to_bytes(selection.node),
            }
            spans = [
                (_number(row["first"]), _number(row["last"]))
                for row in db.execute(store.sql.flow_spans, names)
            ]
            after = min((first - 1 for first, _ in spans), default=0)
            until = max((last for _, last in spans), default=0)
        parts = max(1, at_most)
        span = {"after": _raw(after), "until": _raw(until), "parts": parts}
        # The id just before: no parcel is cut in two.
        bounds = [_number(row["id"]) - 1 for row in db.execute(store.sql.bounds_of_jobs, span)]
    return slices_between(selection, after, until, bounds[: parts - 1])


def id_span(part: Slice) -> dict[str, bytes]:
    """The ends of a slice of jobs, as ids are stored."""
    return {"after": _raw(id_number(part.after)), "until": _raw(id_number(part.until))}


def _raw(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
