"""Rate-limits dashboard reads to a third of one server CPU.

    with share.within():      # what this thread reads from now on
        broker.find(...)

A dashboard with many readers asks as much as it is let. So its looks count what the server took
for them, and above a share of the time they wait, before they begin: nothing is held meanwhile.
Stores whose readers are in nobody's way spend nothing of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

SHARE = 1 / 3  # of one processor of the server, in the long run
SAVED_SECONDS = 0.5  # after a pause so much is asked at once: a page does not wait for itself
LONGEST_REST = 1.0  # after whatever question: the other readers want to see something, too
LONGEST_QUESTION = 5.0  # then the server ends it
AT_ONCE = 2

_mine: ContextVar[Share | None] = ContextVar("share", default=None)


class Spent:
    """What the server took for one look, in seconds."""

    seconds = 0.0


class Share:
    """What all readers of one dashboard have together."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._used = 0.0  # what was asked, less what has been let go since
        self._at = clock()

    @contextmanager
    def within(self) -> Generator[None]:
        """What this thread reads is of this share."""
        before = _mine.set(self)
        try:
            yield
        finally:
            _mine.reset(before)

    @contextmanager
    def look(self) -> Generator[Spent]:
        """One look at the store, in its turn; whoever looks says what was spent."""
        with self._turns:
            self._sleep(self._owed() / SHARE)
            spent, before = Spent(), _mine.set(None)  # a look within a look has had its turn
            try:
                yield spent
            finally:
                _mine.reset(before)
                self._add(spent.seconds)

    def _owed(self) -> float:
        """Seconds of the server that were asked too soon."""
        return max(0.0, self._add(0.0) - SAVED_SECONDS)

    def _add(self, seconds: float) -> float:
        with self._lock:
            now = self._clock()
            left = max(0.0, self._used - SHARE * (now - self._at))
            self._at = now
            self._used = min(left + seconds, SAVED_SECONDS + SHARE * LONGEST_REST)
            return self._used


def my_share() -> Share | None:
    """The share that this thread's looks are of, if there is one."""
    return _mine.get()
