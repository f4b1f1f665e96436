"""Find: the sorted set that has the fewest of the jobs that are meant is read from its newest end.

One call looks at a bounded number of jobs, whatever the filter: a page may be short, and says where
to go on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from penstock.broker.filter import Filter
from penstock.broker.newest_first import made
from penstock.broker.views import Page
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.index import (
    DERIVED,
    NEW,
    has_key,
    job_at,
    older_than,
    place_of,
    state_key,
    tag_key,
    time_bytes,
)
from penstock.brokers.redis.rows import id_of
from penstock.job import Job, State

MOST_EXAMINED = 5_000
_PAGE = 200
_ROUNDING = 0.001  # seconds: times in ids are rounded
Peek = Callable[[Sequence[str]], list[Job[Any]]]


def find(change: RedisChange, peek: Peek, filter: Filter, after: str | None, limit: int) -> Page:
    """One page of what matches; `peek` reads jobs as they are now."""
    upper, found, examined = older_than(after), list[Job[Any]](), 0
    last: Job[Any] | None = None
    places = _places(change, peek, filter, upper)
    while part := list(islice(places, min(_PAGE, MOST_EXAMINED - examined))):
        for job in peek([job_at(place) for place in part]):
            examined += 1
            last = job
            if filter.matches(job):
                found.append(job)
                if len(found) == limit:
                    return Page(found, str(made(job)), examined)
        if examined >= MOST_EXAMINED and last is not None:
            return Page(found, str(made(last)), examined)
    return Page(found, None, examined)


def _places(
    change: RedisChange, peek: Peek, filter: Filter, upper: bytes | None
) -> Iterator[bytes]:
    if filter.states == frozenset({State.RUNNING}):
        return iter(_running(change, peek, upper))
    return _unique(
        heapq.merge(
            *(_downwards(change, key, filter, upper) for key in _keys(filter)), reverse=True
        )
    )


def _keys(filter: Filter) -> list[str]:
    if filter.tags:
        name, values = min(filter.tags.items(), key=lambda each: len(each[1]))
        return [tag_key(name, value) for value in values]
    if all(map(has_key, filter.states)):
        return [state_key(state) for state in filter.states]
    return [DERIVED if filter.derived else NEW]


def _downwards(
    change: RedisChange, key: str, filter: Filter, upper: bytes | None
) -> Iterator[bytes]:
    """The places of a sorted set, newest first, within the times of the filter."""
    low = b"-" if filter.since is None else b"[" + time_bytes(filter.since - _ROUNDING)
    if filter.until is not None:
        until = time_bytes(filter.until + _ROUNDING)
        upper = until if upper is None else min(upper, until)
    high = b"+" if upper is None else b"(" + upper
    while True:
        found: list[bytes] = change.look("ZREVRANGEBYLEX", key, high, low, "LIMIT", 0, _PAGE)
        yield from found
        if len(found) < _PAGE:
            return
        high = b"(" + found[-1]


def _running(change: RedisChange, peek: Peek, upper: bytes | None) -> list[bytes]:
    workers: list[bytes] = change.look("SMEMBERS", "holders")
    held = change.look_many([("HKEYS", b"held:" + worker) for worker in workers])
    jobs = peek([id_of(member) for members in held for member in members])
    places = sorted(map(place_of, jobs), reverse=True)
    return [place for place in places if upper is None or place < upper]


def _unique(places: Iterator[bytes]) -> Iterator[bytes]:
    before = b""
    for place in places:
        if place != before:
            yield place
        before = place
