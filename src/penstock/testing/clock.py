"""A clock for tests, which only moves when a test moves it.

Wall time and monotonic time advance together. `jump` moves wall time alone, as when somebody sets
the machine's clock: jobs become due by it, leases do not end by it.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta


class Clock:
    """Begins at the real time, unless `now` is given."""

    def __init__(self, now: float | None = None) -> None:
        self._lock = threading.Lock()
        self._now = time.time() if now is None else now
        self._monotonic = time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since some fixed moment; unmoved by `jump`."""
        return self._monotonic

    def advance(
        self, seconds: float | timedelta = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Let this much time pass."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        passed = seconds + 60 * minutes + 3600 * hours + 86400 * days
        if passed < 0:
            message = f"time cannot pass by {passed} s: only jump() goes back"
            raise ValueError(message)
        with self._lock:
            self._now += passed
            self._monotonic += passed

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back by this much, as an operator or a time server does."""
        with self._lock:
            self._now += seconds
