"""Jobs as they are written: a head that scripts read, and the rest, which only Python reads.

    state 1 | lane 8 | attempt 4 | claimed_at 8 | flags 1 | length of the worker's name 2 | its name

and the rest. Flags: 1, it was spared a lapse; 2, a claim of it is more than claim.lua does.

An id is written as its 16 bytes, in the same order as its text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.views import Event
from penstock.brokers.positions import position_text
from penstock.job import EMPTY_BODY, Job, Lane, State, Unique

HEAD = struct.Struct(">c8sIdBH")
SPARED, BY_PYTHON = 1, 2
_LETTERS = {
    State.WAITING: b"w",
    State.READY: b"r",
    State.RUNNING: b"x",
    State.SUCCEEDED: b"s",
    State.FAILED: b"f",
    State.CANCELLED: b"c",
}
LETTERS: Mapping[State, bytes] = _LETTERS
STATES = {letter: state for state, letter in _LETTERS.items()}


class Rest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What a script never reads of a job; new fields go to the end."""

    task: str
    body: bytes = EMPTY_BODY
    queue: str = "default"
    version: int = 1
    priority: int = 0
    run_at: float | None = None
    app: str = ""
    enqueued_at: float = 0.0
    result: bytes | None = None
    ended_at: float | None = None
    failures: int = 0
    lapses: int = 0
    spared: int = 0
    repeats: int = 0
    reason: str | None = None
    error: str | None = None
    keep_until: float | None = None
    key: str | None = None
    unique: Unique | None = None
    runs_on: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    search: dict[str, str] = {}
    expires_at: float | None = None
    at_most_once: bool = False


_ID_CHARACTERS = 36
_encode = msgspec.msgpack.Encoder().encode
_decode_rest = msgspec.msgpack.Decoder(Rest).decode
_decode_values = msgspec.msgpack.Decoder(list[Any]).decode
# In the order of the class, without the position: new ones go to its end.
_EVENT_FIELDS = Event.__struct_fields__[1:]
_decode_lane = msgspec.msgpack.Decoder(Lane).decode


def id_bytes(job_id: str) -> bytes:
    """An id as it is written; what is none becomes something that no id is."""
    try:
        if len(job_id) == _ID_CHARACTERS:
            return bytes.fromhex(job_id.replace("-", ""))
    except ValueError:
        pass
    return b"no id: " + job_id.encode(errors="surrogatepass")


def id_of(field: bytes) -> str:
    text = field.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def lane_bytes(lane: Lane) -> bytes:
    return lane.hash.to_bytes(8, "big", signed=True)


def lane_row(lane: Lane) -> bytes:
    return _encode(lane)


def lane_from(row: bytes) -> Lane:
    return _decode_lane(row)


def row_of(job: Job[Any]) -> bytes:
    worker = (job.worker or "").encode()
    head = HEAD.pack(
        _LETTERS[job.state],
        lane_bytes(job.lane),
        job.attempt,
        -1.0 if job.claimed_at is None else job.claimed_at,
        _flags(job),
        len(worker),
    )
    return head + worker + _encode(rest_of(job))


def row_after(before: bytes, after: Job[Any]) -> bytes:
    """The row of a job that ended where it ran; its lane is known from there."""
    head = HEAD.pack(_LETTERS[after.state], before[1:9], after.attempt, -1.0, _flags(after), 0)
    return head + _encode(rest_of(after))


def plain_row(lane: bytes, rest: Rest) -> bytes:
    """The row of a ready job that nobody claimed yet."""
    return HEAD.pack(b"r", lane, 0, -1.0, 0, 0) + _encode(rest)


def _flags(job: Job[Any]) -> int:
    released = job.unique is not None and job.unique.until == "started"
    by_python = BY_PYTHON if released or job.expires_at is not None else 0
    return (SPARED if job.spared else 0) | by_python


def rest_of(job: Job[Any]) -> Rest:
    return Rest(
        job.task,
        job.body,
        job.queue,
        job.version,
        job.priority,
        job.run_at,
        job.app,
        job.enqueued_at,
        job.result,
        job.ended_at,
        job.failures,
        job.lapses,
        job.spared,
        job.repeats,
        job.reason,
        job.error,
        job.keep_until,
        job.key,
        job.unique,
        job.runs_on,
        dict(job.tags),
        dict(job.search),
        job.expires_at,
        job.at_most_once,
    )


def job_of(job_id: str, row: bytes) -> Job[Any]:
    letter, _, attempt, claimed_at, _, length = HEAD.unpack_from(row)
    start = HEAD.size + length
    rest = _decode_rest(row[start:])
    return Job(
        task=rest.task,
        body=rest.body,
        id=job_id,
        queue=rest.queue,
        version=rest.version,
        priority=rest.priority,
        run_at=rest.run_at,
        key=rest.key,
        unique=rest.unique,
        runs_on=rest.runs_on,
        app=rest.app,
        tags=rest.tags,
        search=rest.search,
        expires_at=rest.expires_at,
        at_most_once=rest.at_most_once,
        state=STATES[letter],
        attempt=attempt,
        failures=rest.failures,
        lapses=rest.lapses,
        spared=rest.spared,
        repeats=rest.repeats,
        enqueued_at=rest.enqueued_at,
        claimed_at=None if claimed_at < 0 else claimed_at,
        ended_at=rest.ended_at,
        keep_until=rest.keep_until,
        worker=row[HEAD.size : start].decode() or None,
        reason=rest.reason,
        error=rest.error,
        result=rest.result,
    )


def event_row(event: Event) -> bytes:
    """The values of a row of the history, without its position and without names."""
    return _encode(msgspec.structs.astuple(event)[1:])


def event_of(position: int, row: bytes) -> Event:
    values: dict[str, Any] = dict(zip(_EVENT_FIELDS, _decode_values(row), strict=False))
    state = values["state"]
    values["state"] = None if state is None else State(state)
    return Event(position=position_text(position), **values)
