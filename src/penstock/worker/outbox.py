"""The outbox: outcomes that are to be settled, and the chunks that they belong to.

They are kept until the store has answered, however long that takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.job import Job, Outcome
from penstock.worker.chunk import Chunk
from penstock.worker.store_calls import Pair

FLUSH_SECONDS = 0.003  # how long outcomes are collected when no claim can carry them
LEFT_SECONDS = 1.0  # until outcomes are sent again whose server is away, while others are not
_FLUSH_AT = 256

log = logging.getLogger("penstock.worker")


class Outbox:
    """Filled and emptied by the loop's thread."""

    def __init__(self, failed: Callable[[Job[Any], Outcome], None]) -> None:
        self.pairs: list[Pair] = []
        self.owners: list[tuple[Chunk, int, list[Pair]]] = []
        self.flush_at = 0.0
        self._left = 0  # pairs that were sent, and have to be sent again later
        self._failed = failed  # called for every attempt that counts a failure or a lapse

    def take(self, chunk: Chunk, now: float) -> int:
        """Take over the outcomes of this chunk; how many jobs ended."""
        if len(self.pairs) == self._left:
            self.flush_at = now + FLUSH_SECONDS
        count, done, add = 0, chunk.done, self.pairs.append
        first = len(self.pairs)
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
            self.owners.append((chunk, count, self.pairs[first:]))
        return count

    def overdue(self, now: float) -> bool:
        new = len(self.pairs) - self._left
        return bool(self.pairs) and (now >= self.flush_at or new >= _FLUSH_AT)

    def waits(self, now: float) -> bool:
        """Whether there are outcomes for a call that is made anyway."""
        return bool(self.pairs) and (len(self.pairs) > self._left or now >= self.flush_at)

    def log_left(self, worker: str) -> None:
        log.error(
            "worker %s exits with %d outcomes that the store did not take: these jobs run again "
            "when its lease ends",
            worker,
            len(self.pairs),
        )

    def sent(self, left: Sequence[Pair] = (), now: float = 0.0) -> list[tuple[Chunk, int]]:
        """All outcomes but those `left` are settled. Returns the number of jobs of each chunk."""
        owners, self.pairs, self.owners = self.owners, [], []
        self._left = 0
        if not left:
            return [(chunk, count) for chunk, count, _ in owners]
        kept, settled = set(map(id, left)), list[tuple[Chunk, int]]()
        for chunk, count, pairs in owners:
            still = [pair for pair in pairs if id(pair) in kept]
            self.pairs += still
            if still:
                self.owners.append((chunk, len(still), still))
            if count > len(still):
                settled.append((chunk, count - len(still)))
        self._left = len(self.pairs)
        self.flush_at = now + LEFT_SECONDS
        return settled
