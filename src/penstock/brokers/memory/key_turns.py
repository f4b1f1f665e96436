"""Whose turn it is: the due jobs of a lane key by key, and who stands before whom.

The plain reading: everything is looked at, for every claim. None of it locks.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from penstock.brokers.memory.store import MemoryStore
from penstock.job import Job, Lane, State
from penstock.rules.key_order import holds


class Turns:
    """Where the claims of this process are in the keys of each lane."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.last: dict[Lane, str] = {}

    def due(self, lane: Lane, policy: str) -> Iterator[Job[Any]]:
        """The due jobs of a lane: one of each key after the other, then the next of each."""
        lines: defaultdict[str, deque[Job[Any]]] = defaultdict(deque)
        for job in self._store.due(lane):
            lines[job.key or ""].append(job)
        keys = sorted(lines)
        first = bisect.bisect_right(keys, self.last[lane]) if lane in self.last else 0
        turns = deque(keys[first:] + keys[:first])
        while turns:
            key = turns.popleft()
            if key and policy != "fair":
                head = min(lines[key], key=lambda job: job.id)
                if self.behind(head, policy) is None:
                    yield head
                continue
            yield lines[key].popleft()
            if lines[key]:
                turns.append(key)

    def took(self, lane: Lane, job: Job[Any]) -> None:
        """The next claim goes on after this job's key."""
        self.last[lane] = job.key or ""

    def behind(self, job: Job[Any], policy: str) -> Job[Any] | None:
        """The job that this one waits for: one that runs, or the first that comes before it."""
        if not job.key or policy == "fair":
            return None
        others = [
            other
            for other in self._store.others_of_key(job)
            if other.key == job.key
            and other.queue == job.queue
            and other.id != job.id
            and holds(other, policy)
            and (other.id < job.id or other.state is State.RUNNING)
        ]
        running = [other for other in others if other.state is State.RUNNING]
        return min(running or others, key=lambda other: other.id, default=None)
