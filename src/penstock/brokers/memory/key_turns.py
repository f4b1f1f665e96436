"""Whose turn it is: the due jobs of a lane key by key, and who stands before whom.

The plain reading: everything is looked at, for every claim. None of it locks.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from typing import Any

from penstock.brokers.memory.containers import lane_of
from penstock.brokers.memory.store import MemoryStore
from penstock.job import Job, Lane, State
from penstock.rules.key_order import goes_with_others, holds


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
        if policy == "batch" and keys:
            first = keys.index(min(keys, key=lambda key: _due_at(lines[key][0])))
        turns = deque(keys[first:] + keys[:first])
        while turns:
            key = turns.popleft()
            if key and policy != "fair":
                head = min(lines[key], key=lambda job: job.id)
                if self.behind(head, policy) is None:
                    yield head
                    if policy == "batch":
                        yield from self._after(head, lines[key])
                continue
            yield lines[key].popleft()
            if lines[key]:
                turns.append(key)

    def _after(self, head: Job[Any], due: Collection[Job[Any]]) -> Iterator[Job[Any]]:
        """The jobs that go with this one in a batch, as long as each is taken."""
        store, lane, by_id = self._store, lane_of(head), {job.id: job for job in due}
        of_key = [job for job in store.others_of_key(head) if _one_line(job, head)]
        for job in sorted(of_key, key=lambda job: job.id):
            taken = store.jobs[head.id].state is State.RUNNING
            if not (taken and goes_with_others(head) and goes_with_others(job)):
                return
            if job.id not in by_id or lane_of(job) != lane:
                return
            yield by_id[job.id]
            head = job

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


def _due_at(job: Job[Any]) -> tuple[float, str]:
    return job.enqueued_at if job.run_at is None else job.run_at, job.id


def _one_line(job: Job[Any], head: Job[Any]) -> bool:
    """Whether it is ready, and comes after this one in the line of their key."""
    same = (job.key, job.queue) == (head.key, head.queue)
    return same and job.state is State.READY and job.id > head.id
