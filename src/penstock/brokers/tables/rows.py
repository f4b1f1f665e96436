"""Rows as jobs, and jobs as rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import msgspec

from penstock.brokers.tables.db import Row
from penstock.enqueue.ids import MOST_IN_PARCEL, from_bytes, time_of, to_bytes
from penstock.job import PARCEL_BYTES, Job, Lane, State, Unique
from penstock.rules.rule import Rule, RuleKind

_STATES = frozenset(State)
HELD, SETTLED, ASKED = 0, 1, 2  # the marks of a lease


# Where a packed job's claim is written: Job.lease is the lease, the place in it, the stored id.
# A plain tuple: a named one costs 0.2 us more, for every job claimed.
Held = tuple[int, int, bytes]


def lengths_of(bodies: Sequence[bytes]) -> bytes:
    return array("I", map(len, bodies)).tobytes()


# The parameters of `enqueue_parcel`: first id, lane, jobs, lengths, bodies, attempt, spared.
PackedRow = tuple[bytes, int, int, bytes, bytes, int, int]


def packed_row(
    first: bytes, lane: int, bodies: Sequence[bytes], attempt: int = 0, spared: int = 0
) -> PackedRow:
    """A parcel as the statement `enqueue_parcel` takes it."""
    return first, lane, len(bodies), lengths_of(bodies), b"".join(bodies), attempt, spared


def packed_again(lane: int, jobs: Iterable[tuple[bytes, Job[Any]]]) -> Iterator[PackedRow]:
    """Parcels of jobs whose claims are undone, each given with its stored id."""
    first, bodies, size, counters = b"", list[bytes](), 0, (0, 0)
    for raw, job in sorted(jobs, key=itemgetter(0)):
        follows = (
            len(raw) == len(first)
            and run_of(raw) == run_of(first)
            and int.from_bytes(raw, "big") == int.from_bytes(first, "big") + len(bodies)
        )
        fits = len(bodies) < MOST_IN_PARCEL and size + len(job.body) <= PARCEL_BYTES
        if not (follows and fits and counters == (job.attempt, job.spared)):
            if bodies:
                yield packed_row(first, lane, bodies, *counters)
            first, bodies, size, counters = raw, [], 0, (job.attempt, job.spared)
        bodies.append(job.body)
        size += len(job.body)
    if bodies:
        yield packed_row(first, lane, bodies, *counters)


def split(lengths: bytes, bodies: bytes) -> list[bytes]:
    """The bodies of a parcel. A damaged one gives pieces that do not decode: each fails alone."""
    sizes = array("I")
    sizes.frombytes(lengths[: len(lengths) // 4 * 4])
    pieces: list[bytes] = []
    start = 0
    for size in sizes:
        pieces.append(bodies[start : start + size])
        start += size
    return pieces


def ids_after(first: bytes, count: int) -> list[bytes]:
    """The ids of a parcel, as they are stored."""
    head, tail = first[:14], int.from_bytes(first[14:], "big")
    return [head + end for end in _tails()[tail : tail + count]]


@cache
def _tails() -> list[bytes]:
    """Every end that an id can have; all of them, or another thread's claim would lose jobs."""
    return [number.to_bytes(2, "big") for number in range(1 << 16)]


def made_at(raw: bytes) -> float:
    """ids.time_of, for an id as it is stored."""
    fraction = int.from_bytes(raw[6:8], "big") & 0xFFF
    return int.from_bytes(raw[:6], "big") / 1000 + fraction / 4_096_000


def run_of(raw: bytes) -> bytes:
    """The first id of the run that this one is in: a parcel never reaches beyond its run."""
    tail = int.from_bytes(raw[14:], "big")
    return raw[:14] + (tail & 0xF000).to_bytes(2, "big")


def contents(
    first: bytes, count: int, lengths: bytes, packed: bytes
) -> tuple[list[bytes], list[bytes]]:
    """The ids and bodies of a parcel; a damaged one has jobs without a body, and those fail."""
    count = max(1, min(count, 4096 - (int.from_bytes(first[14:], "big") & 0xFFF)))
    bodies = split(lengths, packed)
    if len(bodies) != count:
        bodies = (bodies + [b""] * (count - len(bodies)))[:count]
    return ids_after(first, count), bodies


def packed_jobs(
    lane: Lane, ids: Sequence[bytes], bodies: Sequence[bytes], **rest: Any
) -> Iterator[Job[Any]]:
    """Jobs out of a parcel, as they are before or while they run."""
    for raw, body in zip(ids, bodies, strict=False):
        job_id = from_bytes(raw)
        yield Job(
            task=lane.task,
            body=body,
            id=job_id,
            queue=lane.queue,
            version=lane.version,
            priority=lane.priority,
            runs_on=lane.runs_on,
            app=lane.app,
            enqueued_at=time_of(job_id) or 0.0,
            **rest,
        )


def ready_jobs(
    lane: Lane, parcel: Row, ids: Sequence[bytes], bodies: Sequence[bytes]
) -> Iterator[Job[Any]]:
    """Some jobs of a parcel."""
    return packed_jobs(lane, ids, bodies, attempt=parcel["attempt"], spared=parcel["spared"])


def leased_jobs(lane: Lane, row: Row) -> Iterator[tuple[int, Job[Any]]]:
    """The jobs of a lease that are not settled, each with its mark."""
    raw, bodies = row["ids"], split(row["lengths"], row["bodies"])
    for offset, mark in enumerate(row["marks"][: len(raw) // 16]):
        if mark == SETTLED:
            continue
        raw_id = raw[offset * 16 : offset * 16 + 16]
        body = bodies[offset] if offset < len(bodies) else b""
        [job] = packed_jobs(
            lane,
            [raw_id],
            [body],
            state=State.RUNNING,
            attempt=row["attempt"],
            spared=row["spared"],
            claimed_at=row["claimed_at"],
            worker=row["worker"],
            lease=(row["id"], offset, raw_id),
        )
        yield mark, job


def blanked(row: Row, offsets: Iterable[int]) -> bytes:
    """The bodies of a lease, with spaces in the place of those that it does not hold any more."""
    bodies = split(row["lengths"], row["bodies"])
    for offset in offsets:
        if offset < len(bodies):
            bodies[offset] = b" " * len(bodies[offset])
    return b"".join(bodies)


def job_of(lane: Lane, row: Row) -> Job[Any]:
    """A job from its own row."""
    unique = None
    if row["unique_key"] is not None:
        unique = Unique(row["unique_key"], row["unique_until"], row["unique_seconds"])
    tags, search = names_in(row["tags"]), names_in(row["search"])
    damaged = tags is None or search is None
    return Job(
        task=lane.task,
        body=b"" if damaged else row["body"],  # which nobody can read: the job fails with a reason
        id=from_bytes(row["id"]),
        queue=lane.queue,
        version=lane.version,
        priority=lane.priority,
        run_at=row["run_at"],
        key=row["key"],
        unique=unique,
        runs_on=lane.runs_on,
        app=lane.app,
        tags=tags or {},
        search=search or {},
        expires_at=row["expires_at"],
        at_most_once=bool(row["at_most_once"]),
        state=State(row["state"]),
        attempt=row["attempt"],
        failures=row["failures"],
        lapses=row["lapses"],
        repeats=row["repeats"],
        spared=row["spared"],
        enqueued_at=row["enqueued_at"],
        claimed_at=row["claimed_at"],
        ended_at=row["ended_at"],
        keep_until=row["keep_until"],
        worker=row["worker"],
        reason=row["reason"],
        error=row["error"],
    )


def succeeded_job(lane: Lane, row: Row) -> Job[Any]:
    """A job that succeeded, from its last history row."""
    return Job(
        task=lane.task,
        body=row["body"],
        id=from_bytes(row["job"]),
        queue=lane.queue,
        version=lane.version,
        priority=lane.priority,
        run_at=row["run_at"],
        key=row["key"],
        runs_on=lane.runs_on,
        app=lane.app,
        tags=names_in(row["tags"]) or {},
        state=State.SUCCEEDED,
        attempt=row["attempt"],
        failures=row["failures"],
        lapses=row["lapses"],
        repeats=row["repeats"],
        enqueued_at=row["enqueued_at"],
        claimed_at=row["started_at"],
        ended_at=row["at"],
        keep_until=row["keep_until"],
        worker=row["worker"],
        result=row["result"],
    )


def row_of(job: Job[Any], lane: int, **changes: Any) -> dict[str, Any]:
    """The parameters of `enqueue`."""
    unique = job.unique
    row: dict[str, Any] = {
        "id": to_bytes(job.id),
        "lane": lane,
        "state": job.state,
        "run_at": job.run_at,
        "minute": 0,
        "attempt": job.attempt,
        "failures": job.failures,
        "lapses": job.lapses,
        "repeats": job.repeats,
        "spared": job.spared,
        "enqueued_at": job.enqueued_at,
        "ended_at": job.ended_at,
        "keep_until": job.keep_until,
        "at_most_once": job.at_most_once,
        "key": job.key,
        "unique_key": unique.key if unique else None,
        "unique_until": unique.until if unique else None,
        "unique_seconds": unique.seconds if unique else None,
        "expires_at": job.expires_at,
        "tags": text_of(job.tags),
        "search": text_of(job.search),
        "reason": job.reason,
        "error": job.error,
        "body": job.body,
    }
    row.update(changes)
    return row


def rule_of(row: Row) -> Rule:
    """A rule from its row."""
    rate = None if row["rate_jobs"] is None else (row["rate_jobs"], row["rate_seconds"])
    return Rule(
        RuleKind(row["kind"]),
        row["queue"] or None,
        row["task"] or None,
        row["author"],
        row["reason"],
        row["created_at"],
        row["until"],
        version=None if row["version"] < 0 else row["version"],
        tag=(row["tag"], row["tag_value"]) if row["tag"] else None,
        key=row["key"] or None,
        running=row["running"],
        rate=rate,
        per_key=bool(row["per_key"]),
        policy=row["policy"],
    )


def rule_place(rule: Rule) -> dict[str, Any]:
    """What tells a rule from others, as parameters of `set_rule` and `clear_rule`."""
    tag, tag_value = rule.tag or ("", "")
    return {
        "kind": rule.kind,
        "queue": rule.queue or "",
        "task": rule.task or "",
        "version": -1 if rule.version is None else rule.version,
        "tag": tag,
        "tag_value": tag_value,
        "key": rule.key or "",
        "per_key": rule.per_key,
    }


def indexed(value: str) -> str:
    """A value as it stands in the index of tags: bounded, and with a sign for NUL.

    `find` looks it up in the same form, and compares what it finds with the value as it is.
    """
    return value[:500].replace("\x00", "\N{SYMBOL FOR NULL}")


def text_of(names: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(names).decode() if names else None


def state_in(text: str | None) -> State | None:
    """A state of the history; None if there is none, or none that is known."""
    return State(text) if text in _STATES else None


def names_in(text: str | None) -> dict[str, str] | None:
    """What `text_of` wrote; None if that is damaged."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None


def find_in(text: str | None) -> dict[str, Any]:
    """The properties of a flow; none if they are damaged."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError:
        return {}


def minute_of(run_at: float, now: float) -> int:
    """The bucket that a ready job is counted in."""
    return int(run_at // 60) if run_at > now else 0


def moved(after: Job[Any], minute: int) -> dict[str, Any]:
    """The parameters of `settle`."""
    # Its end changes a body, the secrets go; and what it spawned and waits for may give it a flow.
    blanked = after.ended_at is not None and b'"secret"' in after.body
    return {
        "body": after.body if blanked or after.state is State.WAITING else None,
        "id": to_bytes(after.id),
        "attempt": after.attempt,
        "state": after.state,
        "run_at": after.run_at,
        "minute": minute,
        "failures": after.failures,
        "lapses": after.lapses,
        "repeats": after.repeats,
        "spared": after.spared,
        "ended_at": after.ended_at,
        "keep_until": after.keep_until,
        "expires_at": after.expires_at,
        "reason": after.reason,
        "error": after.error,
    }
