"""The outbox: outcomes on their way to the store, and whose they are.

Kept until the store has answered for them, however long that takes. `due` remembers when jobs that
go back with a time of their own are wanted again: nobody sends a hint for these.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, cast

from penstock.job import Job, Outcome
from penstock.worker.chunk import Chunk
from penstock.worker.store_link import Pair

FLUSH_SECONDS = 0.003  # how long outcomes wait for company when there is no claim to ride with
_FLUSH_AT = 256
_MOST_DUE = 1000


class Outbox:
    """Filled and emptied by the loop."""

    def __init__(self, failed: Callable[[Job[Any], Outcome], None]) -> None:
        self.pairs: list[Pair] = []
        self.owners: list[tuple[Chunk, int]] = []
        self.flush_at = 0.0
        self._due: list[float] = []
        self._failed = failed  # hears of every attempt that counts as a failure or a lapse

    def take(self, chunk: Chunk, now: float) -> int:
        """Take over what this chunk has to report; how many jobs that is."""
        if not self.pairs:
            self.flush_at = now + FLUSH_SECONDS
        count, done, add = 0, chunk.done, self.pairs.append
        while done:
            pair = done.popleft()
            count += 1
            outcome = pair[1]
            if outcome is None:
                continue
            add(cast("Pair", pair))
            if outcome.failures or outcome.lapses:
                self._failed(pair[0], outcome)
            if outcome.run_at is not None and len(self._due) < _MOST_DUE:
                heappush(self._due, outcome.run_at)
        if count:
            self.owners.append((chunk, count))
        return count

    def overdue(self, now: float) -> bool:
        return bool(self.pairs) and (now >= self.flush_at or len(self.pairs) >= _FLUSH_AT)

    def sent(self) -> list[tuple[Chunk, int]]:
        """Everything has reached the store: empty the box, and say whose it was."""
        owners, self.pairs, self.owners = self.owners, [], []
        return owners

    @property
    def next_due(self) -> float | None:
        """When the next job of ours that went back is wanted, in wall time."""
        return self._due[0] if self._due else None

    def fell_due(self, now: float) -> bool:
        """Whether one is wanted by now; it is forgotten then."""
        due = False
        while self._due and self._due[0] <= now:
            heappop(self._due)
            due = True
        return due
