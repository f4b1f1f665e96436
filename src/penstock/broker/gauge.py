"""Gauges: where the jobs of a queue stand, written into the history once a minute.

Attempts that end leave rows by themselves; a gauge shows what does not move. A queue that holds
nothing is not gauged, but for one row of zeros after it emptied. So a row that is not all zeros,
with none in the two minutes after it, says that no worker was there. (One minute may lack them when
one worker takes over from another.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import msgspec

from penstock.broker.views import Count, Event

MINUTE = 60.0


class Gauge(msgspec.Struct, frozen=True):
    """One queue at one minute; `data` of its row in the history."""

    queue: str
    ready: int = 0
    scheduled: int = 0
    waiting: int = 0
    paused: int = 0
    limited: int = 0
    running: int = 0
    failed: int = 0
    oldest: float | None = None  # seconds that the oldest due job waits that no pause holds back

    @property
    def empty(self) -> bool:
        return self == Gauge(self.queue)


def last_gauges(rows: Iterable[Event]) -> dict[str, tuple[float, Gauge]]:
    """The last gauge of each queue among these rows, oldest first; and when it was."""
    found: dict[str, tuple[float, Gauge]] = {}
    for row in rows:
        with suppress(msgspec.MsgspecError):
            gauge = msgspec.json.decode(row.data or b"", type=Gauge)
            found[gauge.queue] = (row.at, gauge)
    return found


def minute_at(now: float) -> int:
    return int(now // MINUTE)


def gauges_of(
    counts: Iterable[Count], oldest: Mapping[str, float], before: Collection[str]
) -> list[Gauge]:
    """A gauge per queue that holds something, and one of zeros for each that did `before`."""
    queues: dict[str, dict[str, int]] = {queue: {} for queue in before}
    for count in counts:
        row = queues.setdefault(count.queue, {})
        for name in ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed"):
            row[name] = row.get(name, 0) + getattr(count, name)
    return [Gauge(queue, **row, oldest=oldest.get(queue)) for queue, row in sorted(queues.items())]


def queue_in(data: bytes | None) -> str | None:
    """The queue that a gauge is of; None if that cannot be read."""
    try:
        return msgspec.json.decode(data or b"", type=Gauge).queue
    except msgspec.MsgspecError:
        return None
