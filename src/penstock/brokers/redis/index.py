"""By what jobs are found, newest first: keys in which each job stands in the order of its time.

    new         every job                      derived   those whose ids hold no time
    st:<f c w>  those that failed, were cancelled, or wait
    x:<hash>    those with this tag, or with this value of an argument that is searched for

The members of these sorted sets are in the order of `newest_first.made`, as bytes: an id by itself,
or a time and the derived id of a job that was stored then.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from penstock.broker.newest_first import below
from penstock.brokers.redis.rows import LETTERS, id_bytes, id_of
from penstock.enqueue.ids import is_derived, parse_id, tick_of, time_text
from penstock.job import Job, State

NEW, DERIVED = "new", "derived"
_IN_SETS = frozenset({State.FAILED, State.CANCELLED, State.WAITING})
_TAG, _ARGUMENT = "tag", "arg"
_ID = 16  # bytes
_TIME = struct.Struct(">d")


def index_keys(job: Job[Any]) -> Iterator[str]:
    """The sorted sets that a job stands in."""
    yield NEW
    if is_derived(job.id):
        yield DERIVED
    if job.state in _IN_SETS:
        yield state_key(job.state)
    for name, value in job.tags.items():
        yield tag_key(name, value)
    for name, value in job.search.items():
        yield _hashed(_ARGUMENT, name, value)


def state_key(state: State) -> str:
    return f"st:{LETTERS[state].decode()}"


def has_key(state: State) -> bool:
    """Whether jobs of this state have a sorted set of their own."""
    return state in _IN_SETS


def tag_key(name: str, value: str) -> str:
    return _hashed(_TAG, name, value)


def _hashed(*words: str) -> str:
    text = "\0".join(words).encode("utf-8", "surrogatepass")
    return f"x:{hashlib.blake2b(text, digest_size=12).hexdigest()}"


def place_of(job: Job[Any]) -> bytes:
    """Where a job stands in each of them."""
    raw = id_bytes(job.id)
    return _derived_place(job.enqueued_at, raw) if is_derived(job.id) else raw


def _derived_place(at: float, raw: bytes) -> bytes:
    # Above all ids of its tick: those go on with a byte below c0.
    return time_bytes(at) + b"\xff" + _TIME.pack(at) + raw


def time_bytes(at: float) -> bytes:
    """How the ids of a moment begin."""
    return bytes.fromhex(time_text(max(0, tick_of(at))).replace("-", ""))


def job_at(place: bytes) -> str:
    """The id of the job that stands there."""
    return id_of(place[-_ID:])


def older_than(after: str | None) -> bytes | None:
    """The place that a page ended at; None: the very beginning."""
    if not after:
        return None
    below(after)  # refuses what is no place
    text, mark, at = after.partition("@")
    raw = id_bytes(parse_id(text))
    return _derived_place(float(at), raw) if mark else raw
