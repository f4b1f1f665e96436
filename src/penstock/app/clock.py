"""The time, as a value that tests can replace.

`now` is wall time, in seconds since the epoch: for people, and for what is due. `monotonic`
never jumps: for leases on the stores that live on one machine, and to stop oneself.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Protocol


class AnyClock(Protocol):
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


SYSTEM_CLOCK: AnyClock = SystemClock()

TICKING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def ticks() -> float:
    """Monotonic time that goes on while the machine is suspended, where there is such a clock."""
    return time.clock_gettime(TICKING)


class GuessedClock:
    """What a process takes for the time before it has asked its store.

    The machine's time at one moment, and monotonic time from there: whatever somebody does to the
    machine's clock meanwhile, one number puts right all the times that came from here.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - ticks()

    def now(self) -> float:
        return ticks() + self._ahead

    monotonic = staticmethod(time.monotonic)


GUESSED_CLOCK = GuessedClock()


class RemoteClock(ABC):
    """The clock of another machine, as it is known here: asked for now and then."""

    @abstractmethod
    def stale(self) -> bool:
        """Whether it is time to ask again."""

    @abstractmethod
    def refresh(self) -> None:
        """Ask; where there is no answer, what was known goes on."""
