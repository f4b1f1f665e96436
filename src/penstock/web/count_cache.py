"""A cache of counts for stores with very many queues: one `count` a second for all requests.

With few queues every request counts anew. With a thousand or more, requests share a count that is
at most a second old; a change made through this dashboard empties the cache.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.broker.views import Count

MANY = 1_000  # rows: pairs of a queue and a task
KEPT_SECONDS = 1.0


class CountCache:
    """The last count of a large store. One caller counts; those who wait get the same."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: list[Count] | None = None
        self._until = 0.0

    def get(self, count: Callable[[], list[Count]]) -> list[Count]:
        with self._lock:
            if self._kept is not None and self._clock() < self._until:
                return self._kept
            found = count()
            self._kept = found if len(found) >= MANY else None
            self._until = self._clock() + KEPT_SECONDS
            return found

    def clear(self) -> None:
        with self._lock:
            self._kept = None
