"""Rows with an id: each the same job whenever it comes, and compared with the one there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.broker.protocol import Broker
from penstock.errors import Refused
from penstock.job import Job
from penstock.spark.row_ids import change_of, changed_id, stored_hash

_AT_ONCE = 1000  # ids looked up by one call


def new_rows(
    broker: Broker, rows: Sequence[Job[Any]], on_change: str
) -> tuple[list[Job[Any]], dict[str, str]]:
    """The jobs of rows that are not stored yet; and what has changed, by id, where it is refused.

    Of two rows with one id the first counts, and the other must be the same.
    """
    jobs: dict[str, Job[Any]] = {}
    refused: dict[str, str] = {}
    for job in rows:
        first = jobs.setdefault(job.id, job)
        if first is not job and on_change != "keep" and stored_hash(first) != stored_hash(job):
            refused[job.id] = "other arguments, in a row of the same id"
    again: dict[str, tuple[str, str]] = {}  # id -> the id with which it is called again, the change
    stored = _stored(broker, list(jobs))
    for id, before in stored.items():
        job = jobs.pop(id)
        digest = stored_hash(job) or ""
        change = None if on_change == "keep" else change_of(before, digest, job.version)
        if change is not None:
            other = changed_id(id, digest, job.version)
            again[id] = other, change
            if on_change == "again":
                jobs[other] = msgspec.structs.replace(job, id=other)
    if on_change == "refuse" and again:
        called = _stored(broker, [other for other, _ in again.values()])
        refused |= {id: change for id, (other, change) in again.items() if other not in called}
    return list(jobs.values()), refused


def settle_left_out(broker: Broker, left_out: Sequence[Job[Any]], on_change: str) -> None:
    """Rows that another write, or another partition, stored while this one was under way.

    Those that have changed are called again, or refused.
    """
    again, refused = new_rows(broker, left_out, on_change)
    if again:
        broker.enqueue(again)
    if refused:
        id = min(refused)
        raise Refused(
            f"{len(refused)} rows were left out: at the same time another write, or another"
            f" partition of this one, enqueued their ids with {refused[id]} (job {id}). The other"
            ' rows are stored. Write these with on_change="again", or make their ids different'
        )


def _stored(broker: Broker, ids: Sequence[str]) -> dict[str, Job[Any]]:
    stored: dict[str, Job[Any]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        stored |= broker.get_many(ids[start : start + _AT_ONCE])
    return stored
