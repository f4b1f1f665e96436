"""Rate-limits dashboard reads to a third of one server CPU.

    with share.within():      # what this thread reads counts against the share
        broker.find(...)

Each read adds the time that the server spent on it. While the sum is above the share, the next read
waits before it begins, with no lock and no connection held. Stores whose readers slow nobody down
add nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

SHARE = 1 / 3  # of one processor of the server, in the long run
SAVED_SECONDS = 0.5  # allowed at once after a pause, so that one page need not wait
LONGEST_REST = 1.0  # longest wait after any one read, so that other readers get through
LONGEST_QUESTION = 5.0  # the server cancels a read after this
AT_ONCE = 2

current_share: ContextVar[Share | None] = ContextVar("current_share", default=None)


class Spent:
    """Seconds that the server spent on one read."""

    seconds = 0.0


class Share:
    """The budget that all readers of one dashboard share."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._used = 0.0  # seconds spent, less what has been earned back since
        self._at = clock()

    @contextmanager
    def within(self) -> Generator[None]:
        """What this thread reads counts against this share."""
        before = current_share.set(self)
        try:
            yield
        finally:
            current_share.reset(before)

    @contextmanager
    def look(self) -> Generator[Spent]:
        """One read of the store, after the wait it owes; the caller sets `Spent.seconds`."""
        with self._slots:
            self._sleep(self._owed() / SHARE)
            spent, before = Spent(), current_share.set(None)  # a nested read has waited already
            try:
                yield spent
            finally:
                current_share.reset(before)
                self._add(spent.seconds)

    def _owed(self) -> float:
        """Seconds spent beyond what may be saved up."""
        return max(0.0, self._add(0.0) - SAVED_SECONDS)

    def _add(self, seconds: float) -> float:
        with self._lock:
            now = self._clock()
            left = max(0.0, self._used - SHARE * (now - self._at))
            self._at = now
            self._used = min(left + seconds, SAVED_SECONDS + SHARE * LONGEST_REST)
            return self._used
