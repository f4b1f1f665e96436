"""How many jobs of a task to claim at once, and how many of them one hand takes.

A claim costs a transaction and handing over a chunk costs a thread switch, however many jobs they
carry. So quick jobs are claimed by the thousand, and slow ones only for free hands, so that none
waits here while another worker is free. Pure: durations in, numbers out.
"""

from __future__ import annotations

from math import ceil

MOST_AT_ONCE = 2048
_QUICK_SECONDS = 0.05  # a claim whose jobs end sooner was too small
_CHUNK_SECONDS = 0.005
_CPU_SECONDS = 0.000_1  # quicker jobs do no I/O: more threads would not help
_WEIGHT = 0.3  # of the newest measurement in the average


class ClaimSize:
    """Learns the size for one task, from how long its jobs take in this process."""

    __slots__ = ("average", "first", "size")

    def __init__(self, first: int) -> None:
        self.first = first
        self.size = first
        self.average: float | None = None

    def ran(self, jobs: int, seconds: float) -> None:
        """A hand took this long for this many jobs."""
        if jobs:
            per_job = seconds / jobs
            old = self.average
            self.average = per_job if old is None else old + _WEIGHT * (per_job - old)

    def found_none(self, wanted: int) -> None:
        """None came although many were asked for: start again from the first size."""
        if wanted > self.first:
            self.size = self.first

    def stalled(self) -> None:
        """A job took so long that others waited behind it: claim no more than can start at once."""
        self.size = min(self.size, self.first)
        self.average = None

    def claim_ended(self, seconds: float, *, full: bool) -> None:
        """Double the size after a full claim whose jobs were quick, halve it after a slow one."""
        if seconds > _QUICK_SECONDS:
            self.size = max(1, self.size // 2)
        elif full:
            self.size = min(MOST_AT_ONCE, self.size * 2)

    def chunk(self, jobs: int, hands: int) -> int:
        """How many of these jobs one hand takes at a time."""
        if self.average is None or self.average > _CHUNK_SECONDS:
            return 1
        if self.average < _CPU_SECONDS:
            return jobs
        return max(1, min(int(_CHUNK_SECONDS / self.average), ceil(jobs / max(1, hands))))

    @property
    def quick(self) -> bool:
        """Whether to wait for a chunk of these to end, rather than claim while it runs."""
        return self.average is not None and self.average < _CPU_SECONDS
