"""How many jobs of a task to claim at once, and how many one hand takes together.

A claim costs a transaction and a hand-over costs a thread switch, whatever they carry: quick jobs
travel in large numbers, slow ones alone, so that none waits here while another worker is free.
Pure: durations come in, numbers go out.
"""

from __future__ import annotations

from math import ceil

MOST_IN_LEASE = 2048
_QUICK_SECONDS = 0.05  # a lease that ends sooner was too small
_CHUNK_SECONDS = 0.005
_CPU_SECONDS = 0.000_1  # jobs quicker than this do not wait for anything: threads would not help
_WEIGHT = 0.3  # of the newest measurement in the average


class ClaimSize:
    """What is known of one task in this process."""

    __slots__ = ("average", "first", "size")

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = first
        self.average: float | None = None

    def ran(self, jobs: int, seconds: float) -> None:
        """A hand took so long for so many."""
        if jobs:
            each = seconds / jobs
            old = self.average
            self.average = each if old is None else old + _WEIGHT * (each - old)

    def claimed(self, wanted: int, taken: int) -> None:
        """None came although many were wanted: the next one is a first again."""
        if not taken and wanted > self.first:
            self.size = self.first

    def stalled(self) -> None:
        """A job took so long that others waited behind it: claim no more than can start."""
        self.size = min(self.size, self.first)
        self.average = None

    def lease_ended(self, seconds: float, *, full: bool) -> None:
        """Double a lease that was full and quick, halve one that took long."""
        if seconds > _QUICK_SECONDS:
            self.size = max(1, self.size // 2)
        elif full:
            self.size = min(MOST_IN_LEASE, self.size * 2)

    def chunk(self, jobs: int, hands: int) -> int:
        """How many of these jobs one hand takes together."""
        if self.average is None or self.average > _CHUNK_SECONDS:
            return 1
        if self.average < _CPU_SECONDS:
            return jobs
        return max(1, min(int(_CHUNK_SECONDS / self.average), ceil(jobs / max(1, hands))))

    @property
    def quick(self) -> bool:
        """Whether a chunk of these is worth waiting for, rather than claiming beside it."""
        return self.average is not None and self.average < _CPU_SECONDS
