"""Back-off for hints of the store that lead to no job.

A hint says that jobs may be there, for any worker and any task. One that others got, or that this
worker may not run, is worth less each time: after some of them, several are taken together.
"""

from __future__ import annotations

import time


class HintBackoff:
    """After `free` hints in a row without a job, ignore hints for `first` seconds, then longer."""

    def __init__(self, free: int, first: float, longest: float) -> None:
        self.ignore_until = 0.0  # monotonic
        self._free = free
        self._first = first
        self._longest = longest
        self._empty = 0  # hints in a row that led to no job

    def hint(self) -> float:
        """A hint came: when to claim."""
        now = time.monotonic()
        self._empty += 1
        if self._empty <= self._free:
            return now
        pause = self._first * 2 ** min(self._empty - self._free, 7)
        self.ignore_until = now + min(self._longest, pause)
        return self.ignore_until

    def found(self) -> None:
        """A claim returned jobs."""
        self._empty = 0
