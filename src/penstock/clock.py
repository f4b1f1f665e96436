"""The time, as a value that tests can replace.

`now` is wall time, in seconds since the epoch: for people, and for what is due. `monotonic`
never jumps: for leases on the stores that live on one machine, and to stop oneself.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since a fixed moment of this boot, the same for every process of the machine."""
        ...


class SystemClock:
    """The machine's own clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


SYSTEM_CLOCK: Clock = SystemClock()
