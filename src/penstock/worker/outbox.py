"""The outbox: outcomes that are to be settled, and the chunks that they belong to.

They are kept until the store has answered, however long that takes. `next_due` remembers when jobs
that this worker put back with a later `run_at` are due: the store sends no hint for these.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, cast

from penstock.job import Job, Outcome
from penstock.worker.chunk import Chunk
from penstock.worker.store_calls import Pair

FLUSH_SECONDS = 0.003  # how long outcomes are collected when no claim can carry them
_FLUSH_AT = 256
_MOST_DUE = 1000


class Outbox:
    """Filled and emptied by the loop's thread."""

    def __init__(self, failed: Callable[[Job[Any], Outcome], None]) -> None:
        self.pairs: list[Pair] = []
        self.owners: list[tuple[Chunk, int]] = []
        self.flush_at = 0.0
        self._due: list[float] = []
        self._failed = failed  # called for every attempt that counts a failure or a lapse

    def take(self, chunk: Chunk, now: float) -> int:
        """Take over the outcomes of this chunk; how many jobs ended."""
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
        """All outcomes are settled: empty the outbox. Returns the number of jobs of each chunk."""
        owners, self.pairs, self.owners = self.owners, [], []
        return owners

    @property
    def next_due(self) -> float | None:
        """When the next job that was put back is due, in wall time."""
        return self._due[0] if self._due else None

    def fell_due(self, now: float) -> bool:
        """Whether one is due by now; it is forgotten then."""
        due = False
        while self._due and self._due[0] <= now:
            heappop(self._due)
            due = True
        return due
