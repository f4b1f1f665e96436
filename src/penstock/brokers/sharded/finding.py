"""Find over shards: one page out of several, newest first, and little more read than it shows.

Each shard is asked for its part of the page and some more. One that has given all of it before the
page is full is asked for what is still missing: a batch has one bucket, so the newest jobs may all
be of one shard.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import ceil, sqrt
from typing import Any, NamedTuple

from penstock.broker.filter import Filter
from penstock.broker.newest_first import MadeAt, made
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import ShardMap
from penstock.broker.views import Page
from penstock.brokers.sharded.shards import AWAY, Shards
from penstock.enqueue.ids import BUCKETS
from penstock.job import Job

MOST_FOUND = 1000
_MORE = 100  # to ask again costs as much as these jobs


class _Entry(NamedTuple):
    """A job to merge; without one, a bound: what this shard has behind it was not read."""

    made: MadeAt
    job: Job[Any] | None = None


class PageOverShards:
    """One page of all shards that answer."""

    def __init__(self, shards: Shards, filter: Filter, limit: int) -> None:
        self._shards, self._filter = shards, filter
        self._limit = min(max(limit, 1), MOST_FOUND)
        self._found: list[Job[Any]] = []
        self._examined = 0

    def read(self, after: str | None) -> Page:
        """The page behind this place, which is that of a page of any of them."""
        self._shards.join_named()
        sizes = _sizes(self._shards, self._limit)
        asked = {name: _finding(self._filter, after, size) for name, size in sizes.items()}
        pages = self._shards.reached_by(asked)
        entries = [self._entries(name, page, sizes[name]) for name, page in pages.items()]
        end = self._merge(entries)
        return Page(self._found, None if end is None else str(end), self._examined)

    def _merge(self, entries: Iterable[Iterator[_Entry]]) -> MadeAt | None:
        """Merge until the page is full, or a shard has not read further; the place it ends at."""
        found = self._found
        for place, job in heapq.merge(*entries, key=_made, reverse=True):
            if len(found) == self._limit:
                return made(found[-1])
            if job is None:
                return place
            if not found or found[-1].id != job.id:  # it moved between two pages
                found.append(job)
        return None

    def _entries(self, name: str, page: Page, asked: int) -> Iterator[_Entry]:
        """The jobs of one shard, of which more is read when the merge has come so far."""
        while True:
            self._examined += page.examined
            for job in page.jobs:
                yield _Entry(made(job), job)
            if page.after is None:
                return
            left = self._limit - len(self._found)
            more = None
            # A page that was cut short has read as much as one call may.
            if left and len(page.jobs) == asked:
                asked = min(left, max(_MORE, 2 * asked))
                more = self._more(name, page.after, asked)
            if more is None:
                yield _Entry(_place(page.after))
                return
            page = more

    def _more(self, name: str, after: str, limit: int) -> Page | None:
        """The next page of one shard; none if it is away by now."""
        verb = _finding(self._filter, after, limit)
        try:
            return self._shards.named[name].call(verb)
        except AWAY:
            return None


def _sizes(shards: Shards, limit: int) -> Mapping[str, int]:
    """How many jobs each shard is asked for: its part of a page, and as many as chance may add."""
    if len(shards.named) == 1:
        return dict.fromkeys(shards.named, limit)
    buckets = _buckets(shards.newest)
    usual = {name: limit * buckets.get(name, 0) / BUCKETS for name in shards.named}
    return {name: min(limit, ceil(part + 2 * sqrt(part)) + 1) for name, part in usual.items()}


@lru_cache(maxsize=8)
def _buckets(known: ShardMap) -> Mapping[str, int]:
    """How many buckets each shard has."""
    return {
        name: sum(last - first + 1 for first, last in ranges)
        for name, ranges in known.buckets().items()
    }


def _made(entry: _Entry) -> MadeAt:
    return entry.made


def _place(after: str) -> MadeAt:
    """The place in the order of jobs that a page ended at: greater is newer."""
    job_id, mark, at = after.partition("@")
    return made(Job(task="", id=job_id, enqueued_at=float(at) if mark else 0.0))


def _finding(filter: Filter, after: str | None, limit: int) -> Callable[[Broker], Page]:
    return lambda store: store.find(filter, after, limit)
