"""The store's time, as it is known here.

The server's clock decides what is due and whose lease ran out. It is read now and then; in between
monotonic time goes on from it, so that a jump of this machine's own clock moves nothing.
"""

from __future__ import annotations

import time

FRESH_SECONDS = 60.0


class StoreClock:
    """Wall time by the server's clock, to half a round trip."""

    def __init__(self) -> None:
        self.offset = 0.0  # of this machine's clock, when it was measured last; for doctor
        self._ahead = time.time() - time.monotonic()
        self._measured_at: float | None = None

    def now(self) -> float:
        return time.monotonic() + self._ahead

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    def stale(self) -> bool:
        """Whether it is time to ask the server again."""
        return self._measured_at is None or time.monotonic() - self._measured_at > FRESH_SECONDS

    def measured(self, server_time: float, asked_at: float, heard_at: float) -> None:
        """The server said what time it is; the times on this side are monotonic."""
        self._ahead = server_time - (asked_at + heard_at) / 2
        self.offset = time.time() - self.now()
        self._measured_at = heard_at
