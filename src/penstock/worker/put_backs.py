"""Put-backs: jobs that a worker claimed and made ready again, counted by queue and reason.

One that went back before it began leaves no row of history, so the worker counts, in its row in the
store. The numbers only grow; whoever reads them adds up what they gained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from penstock.broker.values import Settlement
from penstock.job import State, is_put_back

MOST_PAIRS = 40  # of queue and reason; what comes later is counted under the queue OTHER
OTHER = "other"
MOST_BYTES = 4096  # of them as JSON, in the memory that is shared with the supervisor
_MOST_NAME = 64  # characters of a queue's name

_READY = State.READY

ByQueue = Mapping[str, Mapping[str, int]]


class PutBacks:
    """Counted by the loop's thread; `by_queue` is replaced as a whole: any thread may read it."""

    def __init__(self) -> None:
        self.by_queue: ByQueue = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, settled: Sequence[Settlement]) -> None:
        """Count those of these settled outcomes that are put-backs."""
        found = [pair for pair in settled if pair[1].state is _READY and is_put_back(pair[1])]
        for job, outcome in found:
            pair = (job.queue[:_MOST_NAME], outcome.reason or "unclaimed")
            if pair not in self._counts and len(self._counts) >= MOST_PAIRS:
                pair = (OTHER, OTHER)
            self._counts[pair] += 1
        if found:
            by_queue: dict[str, dict[str, int]] = {}
            for (queue, reason), number in self._counts.items():
                by_queue.setdefault(queue, {})[reason] = number
            self.by_queue = by_queue


def encoded(by_queue: ByQueue) -> bytes:
    """As JSON of at most `MOST_BYTES`; queues that do not fit are added up."""
    text = msgspec.json.encode(by_queue)
    if len(text) <= MOST_BYTES:
        return text
    total = Counter[str]()
    for reasons in by_queue.values():
        total.update(reasons)
    return msgspec.json.encode({OTHER: total})
