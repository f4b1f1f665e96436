"""Gathers jobs of batch tasks until their batch is full or has waited long enough.

They are claimed like all others, and held in a chunk that no hand has yet; a worker that stops puts
them back. Used by the loop's thread alone; does no I/O.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.job import Job
from penstock.worker.chunk import Chunk, ClaimGroup

_KEYS = 4  # with a batch per key: jobs for this many full batches are held at most
_LATEST = 0.5  # part of the time within which a job under a rate limit has to start


_Batch = tuple[str, str | None]  # the task, and the key where each key has a batch of its own


class BatchSize(NamedTuple):
    """How the jobs of one batch task are gathered."""

    most: int
    linger: float
    by_key: bool
    in_order: bool = False  # a claim may bring many of one key, and they are one call


class Gathering:
    """The chunks that are not full, each with the time at which it is called anyway."""

    def __init__(self) -> None:
        self.sizes: Mapping[str, BatchSize] = {}  # by batch task
        self._open: dict[_Batch, Chunk] = {}
        self._due_at: dict[_Batch, float] = {}

    def room(self) -> dict[str, int]:
        """How many more jobs of each batch task can be taken in."""
        room = {
            task: size.most * _KEYS if size.by_key and not size.in_order else size.most
            for task, size in self.sizes.items()
        }
        for (task, _), chunk in self._open.items():
            room[task] -= len(chunk.jobs)
        return room

    def add(
        self, jobs: Sequence[Job[Any]], rules: int, now: float, *, asynchronous: bool
    ) -> tuple[list[Chunk], list[Chunk]]:
        """Take in jobs of one batch task. Returns the new chunks, and those that are full now."""
        by_batch: dict[_Batch, list[Job[Any]]] = {}
        for job in jobs:
            batch = (job.task, job.key if self.sizes[job.task].by_key else None)
            by_batch.setdefault(batch, []).append(job)
        begun: list[Chunk] = []
        full: list[Chunk] = []
        for batch, group in by_batch.items():
            most, taken = self.sizes[batch[0]].most, 0
            while taken < len(group):
                chunk = self._open.get(batch)
                if chunk is None:
                    chunk = self._begin(batch, rules, now)
                    chunk.asynchronous = asynchronous
                    begun.append(chunk)
                part = group[taken : taken + most - len(chunk.jobs)]
                taken += len(part)
                chunk.grow(part)
                self._hurry(batch, part, now)
                if len(chunk.jobs) >= most:
                    full.append(self._close(batch))
        return begun, full

    def _begin(self, batch: _Batch, rules: int, now: float) -> Chunk:
        # The rules version of the first job: for later ones the start check compares once more.
        chunk = Chunk(ClaimGroup(batch[0], 0, now, full=False), [], rules, math.inf)
        chunk.as_batch = True
        self._open[batch], self._due_at[batch] = chunk, now + self.sizes[batch[0]].linger
        return chunk

    def _hurry(self, batch: _Batch, jobs: Sequence[Job[Any]], now: float) -> None:
        withins = [job.start_within for job in jobs if job.start_within is not None]
        if withins:
            self._due_at[batch] = min(self._due_at[batch], now + _LATEST * min(withins))

    def due(self, now: float) -> list[Chunk]:
        """The chunks that have waited long enough, or that no further job can join."""
        if not self._open:
            return []
        room = self.room()
        due = [
            batch for batch, due_at in self._due_at.items() if due_at <= now or room[batch[0]] <= 0
        ]
        return [self._close(batch) for batch in due]

    def withdraw(self, ids: Collection[str]) -> list[tuple[Chunk, list[Job[Any]]]]:
        """Take out the jobs of these ids. Returns the chunks concerned, each with these."""
        taken: list[tuple[Chunk, list[Job[Any]]]] = []
        for batch, chunk in list(self._open.items()):
            if jobs := [job for job in chunk.jobs if job.id in ids]:
                chunk.jobs = deque(job for job in chunk.jobs if job.id not in ids)
                taken.append((chunk, jobs))
                if not chunk.jobs:
                    self._close(batch)
        return taken

    def forget(self) -> None:
        """Drop all chunks; the loop, which is stopping, puts their jobs back."""
        self._open.clear()
        self._due_at.clear()

    @property
    def next_due(self) -> float:
        """When the next chunk has waited long enough."""
        return min(self._due_at.values(), default=math.inf)

    def _close(self, batch: _Batch) -> Chunk:
        del self._due_at[batch]
        return self._open.pop(batch)
