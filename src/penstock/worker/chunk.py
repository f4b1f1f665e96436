"""Chunks: jobs on their way through a worker, from the claim to the settlement.

The jobs of one task that a claim returned are a group, cut into chunks; a hand takes a chunk.
`jobs` and `done` are deques because threads take from both ends without a lock: the hand from the
left of `jobs`, whoever takes back what was not started from the right. A job counts as held until
the store has accepted or refused its outcome.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.job import Job, Outcome

Done = tuple[Job[Any], Outcome | None]  # None: it settled itself


@dataclass(slots=True, eq=False)
class ClaimGroup:
    """The jobs of one task that one claim returned; the time they take decides the next claim."""

    task: str
    left: int
    began: float
    full: bool  # as many as were asked for: there may be more


@dataclass(slots=True, eq=False)
class Chunk:
    """Jobs of one task that one hand takes together."""

    group: ClaimGroup
    claimed: Sequence[Job[Any]]
    rules: int  # the version of the rules before the claim
    start_until: float  # monotonic: what has not started by then is put back
    asynchronous: bool = False  # on the event loop
    own_process: bool = False  # each job runs in a process of its own
    as_batch: bool = False  # all jobs in one call, of a batch task
    slow: bool = False  # one job takes long: the others should go to other hands
    finished: bool = False  # no hand has it any more
    counted: bool = False  # the loop has counted its hand as free
    ran: int = 0
    seconds: float = 0.0
    done: deque[Done] = field(default_factory=deque[Done])
    task: str = field(init=False)
    jobs: deque[Job[Any]] = field(init=False)
    left: int = field(init=False)  # jobs that are not settled yet
    # For an at-most-once job, whose slot stays taken until its outcome is stored:
    settled: threading.Event | None = None  # the hand waits for this
    slot: int | None = None  # its slot on the event loop

    def __post_init__(self) -> None:
        self.task = self.group.task
        self.jobs = deque(self.claimed)
        self.left = len(self.claimed)

    def grow(self, jobs: Sequence[Job[Any]]) -> None:
        """Add jobs; only while no hand has the chunk."""
        self.claimed = [*self.claimed, *jobs]
        self.jobs.extend(jobs)
        self.left += len(jobs)
        self.group.left += len(jobs)

    def take_all(self) -> list[Job[Any]]:
        """All jobs, for a hand that starts them in one call."""
        taken: list[Job[Any]] = []
        while True:
            try:
                taken.append(self.jobs.popleft())
            except IndexError:
                return taken

    def take_back(self) -> list[Job[Any]]:
        """The jobs that were not started; the hand that has this chunk finds no more."""
        taken: deque[Job[Any]] = deque()
        while True:
            try:
                taken.appendleft(self.jobs.pop())
            except IndexError:
                return list(taken)
