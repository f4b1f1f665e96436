"""Jobs of batch tasks that wait for others of their batch, until the call is made.

They are claimed as all others are, and held: in a chunk that no hand has yet, so that a worker that
stops puts them back, and grows until it is full or has waited long enough. Used by the loop alone.
Knows numbers and chunks, no store.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.job import Job
from penstock.worker.chunk import Chunk, Lease

_KEYS = 4  # where each key has a batch of its own, so many full ones are the most that is held
_LATEST = 0.5  # of the time within which a job under a rate has to begin


class BatchSize(NamedTuple):
    """How the jobs of one batch task are gathered."""

    most: int
    linger: float
    by_key: bool


class Gathering:
    """The chunks that grow, each with the time at which its call is made in any case."""

    def __init__(self) -> None:
        self.sizes: Mapping[str, BatchSize] = {}  # of the batch tasks there are
        self._open: dict[tuple[str, str | None], Chunk] = {}
        self._due_at: dict[tuple[str, str | None], float] = {}

    def rooms(self) -> dict[str, int]:
        """How many more jobs of each batch task are wanted."""
        rooms = {
            task: size.most * _KEYS if size.by_key else size.most
            for task, size in self.sizes.items()
        }
        for (task, _), chunk in self._open.items():
            rooms[task] -= len(chunk.jobs)
        return rooms

    def add(
        self, jobs: Sequence[Job[Any]], rules: int, now: float, *, asynchronous: bool
    ) -> tuple[list[Chunk], list[Chunk]]:
        """Take in jobs of one batch task: the chunks that this began, and those that are full."""
        together: dict[tuple[str, str | None], list[Job[Any]]] = {}
        for job in jobs:
            place = (job.task, job.key if self.sizes[job.task].by_key else None)
            together.setdefault(place, []).append(job)
        begun: list[Chunk] = []
        full: list[Chunk] = []
        for place, group in together.items():
            most, taken = self.sizes[place[0]].most, 0
            while taken < len(group):
                chunk = self._open.get(place)
                if chunk is None:
                    chunk = self._begin(place, rules, now)
                    chunk.asynchronous = asynchronous
                    begun.append(chunk)
                part = group[taken : taken + most - len(chunk.jobs)]
                taken += len(part)
                chunk.grow(part)
                self._hurry(place, part, now)
                if len(chunk.jobs) >= most:
                    full.append(self._close(place))
        return begun, full

    def _begin(self, place: tuple[str, str | None], rules: int, now: float) -> Chunk:
        # Older than those of jobs that come later: what changed since then is looked at again.
        chunk = Chunk(Lease(place[0], 0, now, full=False), [], rules, math.inf)
        chunk.together = True
        self._open[place], self._due_at[place] = chunk, now + self.sizes[place[0]].linger
        return chunk

    def _hurry(self, place: tuple[str, str | None], jobs: Sequence[Job[Any]], now: float) -> None:
        withins = [job.start_within for job in jobs if job.start_within is not None]
        if withins:
            self._due_at[place] = min(self._due_at[place], now + _LATEST * min(withins))

    def due(self, now: float) -> list[Chunk]:
        """The chunks that have waited long enough, or that nobody can join any more."""
        if not self._open:
            return []
        rooms = self.rooms()
        places = [
            place for place, due_at in self._due_at.items() if due_at <= now or rooms[place[0]] <= 0
        ]
        return [self._close(place) for place in places]

    def withdraw(self, ids: Collection[str]) -> list[tuple[Chunk, list[Job[Any]]]]:
        """Take out the jobs of these ids; the chunks that had some, each with what it had."""
        taken: list[tuple[Chunk, list[Job[Any]]]] = []
        for place, chunk in list(self._open.items()):
            if jobs := [job for job in chunk.jobs if job.id in ids]:
                chunk.jobs = deque(job for job in chunk.jobs if job.id not in ids)
                taken.append((chunk, jobs))
                if not chunk.jobs:
                    self._close(place)
        return taken

    def forget(self) -> None:
        """The worker stops: whoever has their chunks puts the jobs back."""
        self._open.clear()
        self._due_at.clear()

    @property
    def next_due(self) -> float:
        """When the next chunk has waited long enough."""
        return min(self._due_at.values(), default=math.inf)

    def _close(self, place: tuple[str, str | None]) -> Chunk:
        del self._due_at[place]
        return self._open.pop(place)
