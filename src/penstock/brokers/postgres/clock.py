"""The store's time, as it is known here.

The server's clock decides what is due and whose lease ran out. It is read now and then; in between
monotonic time goes on from it, so that a jump of this machine's own clock moves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.app.clock import TICKING, RemoteClock, ticks

FRESH_SECONDS = 60.0
SLOW_SECONDS = 0.5  # an answer that took longer says little about the time
_AGAIN_SECONDS = 1.0

_time = time.clock_gettime


class StoreClock(RemoteClock):
    """Wall time by the server's clock, to half a round trip.

    `ask` gets the server to say it, which ends in `measured`.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.offset = 0.0  # of this machine's clock, when it was measured last; for doctor
        self._ahead = time.time() - ticks()
        self._measured_at: float | None = None

    def now(self) -> float:
        return _time(TICKING) + self._ahead  # ticks(), spelt out: asked twice for every job

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    def stale(self) -> bool:
        """Whether it is time to ask the server again."""
        return self._measured_at is None or ticks() - self._measured_at > FRESH_SECONDS

    def refresh(self) -> None:
        measured_at = self._measured_at
        self._ask()
        if self._measured_at == measured_at:  # no answer: whoever asks next need not wait for it
            self._measured_at = ticks() - FRESH_SECONDS + _AGAIN_SECONDS

    def measured(self, server_time: float, asked_at: float, heard_at: float) -> None:
        """The server said what time it is; the times on this side are `ticks`."""
        if self._measured_at is not None and heard_at - asked_at > SLOW_SECONDS:
            self._measured_at = heard_at - FRESH_SECONDS + _AGAIN_SECONDS  # soon again
            return
        self._ahead = server_time - (asked_at + heard_at) / 2
        self.offset = time.time() - self.now()
        self._measured_at = heard_at
