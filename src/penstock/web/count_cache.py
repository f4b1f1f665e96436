"""Counts of a store with very many queues: one look a second, whoever asks.

With few queues every look is at the store itself. With a thousand or more a look costs as much as a
page may take, and so pages share one that is a second old at most; whoever changes something
through this dashboard sees it at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.broker.views import Count

MANY = 1_000  # rows: pairs of a queue and a task
KEPT_SECONDS = 1.0


class Counting:
    """The last look, if it is worth keeping. One at a time: whoever waits gets the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: list[Count] | None = None
        self._until = 0.0

    def counts(self, look: Callable[[], list[Count]]) -> list[Count]:
        with self._lock:
            if self._kept is not None and self._clock() < self._until:
                return self._kept
            found = look()
            self._kept = found if len(found) >= MANY else None
            self._until = self._clock() + KEPT_SECONDS
            return found

    def forget(self) -> None:
        """Something was changed."""
        with self._lock:
            self._kept = None
