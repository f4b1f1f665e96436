"""Chunks: jobs on their way through a worker, from the claim to the settlement.

One claim gives a lease per task, cut into chunks; a hand takes a chunk. `jobs` and `done` are
deques because threads take from both ends without a lock: the hand from the left of `jobs`, whoever
takes back what was not started from the right. A job is counted as held until the store has
answered for it, wherever it is in between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.job import Job, Outcome

Done = tuple[Job[Any], Outcome | None]  # None: it settled itself


class Lease:
    """What one claim brought of one task: its end tells how many to claim next time."""

    __slots__ = ("began", "full", "left", "task")

    def __init__(self, task: str, taken: int, began: float, *, full: bool) -> None:
        self.task = task
        self.left = taken
        self.began = began
        self.full = full  # there may have been more


class Chunk:
    """Jobs of one task that one hand takes together."""

    __slots__ = (
        "alone",
        "asynchronous",
        "claimed",
        "counted",
        "done",
        "finished",
        "jobs",
        "lease",
        "left",
        "ran",
        "rules",
        "seconds",
        "settled",
        "slot",
        "slow",
        "start_until",
        "task",
        "together",
    )

    def __init__(
        self, lease: Lease, jobs: Sequence[Job[Any]], rules: int, start_until: float
    ) -> None:
        self.lease = lease
        self.task = lease.task
        self.claimed = jobs
        self.jobs = deque(jobs)
        self.done: deque[Done] = deque()
        self.left = len(jobs)  # the store has not answered for these
        self.rules = rules  # their version before the claim
        self.start_until = start_until  # monotonic: what has not begun by then is put back
        self.alone = False  # in a process of its own
        self.asynchronous = False  # on the event loop
        self.together = False  # in one call, of a batch task
        self.slow = False  # its hand has stopped at one job: the others should not wait
        self.finished = False  # no hand has it any more
        self.counted = False  # and the loop knows
        self.ran = 0
        self.seconds = 0.0
        # Of an at-most-once job, whose slot says that it began until the store knows how it ended:
        self.settled: threading.Event | None = None  # the hand waits for this
        self.slot: int | None = None  # on the event loop

    def grow(self, jobs: Sequence[Job[Any]]) -> None:
        """Add jobs, as long as no hand has it."""
        self.claimed = [*self.claimed, *jobs]
        self.jobs.extend(jobs)
        self.left += len(jobs)
        self.lease.left += len(jobs)

    def take_all(self) -> list[Job[Any]]:
        """The jobs, for a hand that begins them together."""
        taken: list[Job[Any]] = []
        while True:
            try:
                taken.append(self.jobs.popleft())
            except IndexError:
                return taken

    def take_back(self) -> list[Job[Any]]:
        """The jobs that no hand has begun; the hand that has this chunk finds no more."""
        taken: deque[Job[Any]] = deque()
        while True:
            try:
                taken.appendleft(self.jobs.pop())
            except IndexError:
                return list(taken)
