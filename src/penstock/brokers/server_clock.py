"""The server's time, which decides what is due and when a lease ends.

It is read from the server once a minute; in between it advances with this machine's monotonic
clock, so that a jump of its wall clock has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.app.clock import TICKING, RemoteClock, ticks

FRESH_SECONDS = 60.0
SLOW_SECONDS = 0.5  # an answer that took longer is too inexact
_AGAIN_SECONDS = 1.0  # until the next attempt after one that failed

_time = time.clock_gettime


class StoreClock(RemoteClock):
    """Wall time by the server's clock, exact to half a round trip.

    `ask` reads it from the server, and calls `measured` with the answer.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.offset = 0.0  # this machine's wall clock minus the server's; for doctor
        self._ahead = time.time() - ticks()
        self._measured_at: float | None = None

    def now(self) -> float:
        return _time(TICKING) + self._ahead  # ticks() written out: called twice for every job

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    def stale(self) -> bool:
        """Whether it is time to read the server's clock again."""
        return self._measured_at is None or ticks() - self._measured_at > FRESH_SECONDS

    def refresh(self) -> None:
        measured_at = self._measured_at
        self._ask()
        if self._measured_at == measured_at:  # no answer: do not let the next caller wait, too
            self._measured_at = ticks() - FRESH_SECONDS + _AGAIN_SECONDS

    def measured(self, server_time: float, asked_at: float, heard_at: float) -> None:
        """The server answered its time; `asked_at` and `heard_at` are `ticks` on this side."""
        if self._measured_at is not None and heard_at - asked_at > SLOW_SECONDS:
            self._measured_at = heard_at - FRESH_SECONDS + _AGAIN_SECONDS  # soon again
            return
        self._ahead = server_time - (asked_at + heard_at) / 2
        self.offset = time.time() - self.now()
        self._measured_at = heard_at
