"""The outbox: outcomes that are to be settled, and the chunks that they belong to.

They are kept until the store has answered, however long that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from penstock.job import Job, Outcome
from penstock.worker.chunk import Chunk
from penstock.worker.store_calls import Pair

FLUSH_SECONDS = 0.003  # how long outcomes are collected when no claim can carry them
_FLUSH_AT = 256


class Outbox:
    """Filled and emptied by the loop's thread."""

    def __init__(self, failed: Callable[[Job[Any], Outcome], None]) -> None:
        self.pairs: list[Pair] = []
        self.owners: list[tuple[Chunk, int]] = []
        self.flush_at = 0.0
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
        if count:
            self.owners.append((chunk, count))
        return count

    def overdue(self, now: float) -> bool:
        return bool(self.pairs) and (now >= self.flush_at or len(self.pairs) >= _FLUSH_AT)

    def sent(self) -> list[tuple[Chunk, int]]:
        """All outcomes are settled: empty the outbox. Returns the number of jobs of each chunk."""
        owners, self.pairs, self.owners = self.owners, [], []
        return owners
