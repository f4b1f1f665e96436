"""Recent statistics from the store itself: rates, waits, runs and failures per task.

Read from the last rows of the history, a bounded number of them; the result says from when to when.
Reports over longer times are made from the lake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.broker.gauge import Gauge
from penstock.broker.views import Event
from penstock.job import State

MOST_ATTEMPTS = 2_000
MOST_GAUGES = 2_000
LAPSED = frozenset({"crashed", "lost"})  # reasons of attempts whose worker was gone

History = Callable[..., Sequence[Event]]


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempts of one task in one queue; times are in seconds."""

    queue: str
    task: str
    attempts: int = 0
    succeeded: int = 0
    failed: int = 0  # for good
    again: int = 0  # attempts after which the job runs again
    lapsed: int = 0  # attempts, among those two, whose worker was gone
    wait: float | None = None  # median
    wait_p95: float | None = None
    run: float | None = None
    run_p95: float | None = None


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together, at one minute."""

    at: float
    ready: int = 0
    running: int = 0
    failed: int = 0
    held: int = 0  # paused or limited
    oldest: float | None = None


class RecentStats(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics, and the attempts and times that they cover."""

    tasks: Sequence[TaskStats] = ()  # most attempts first
    depths: Sequence[QueueDepth] = ()  # oldest first
    attempts: int = 0
    since: float | None = None
    until: float | None = None
    whole: bool = True  # all attempts of the history are covered

    @property
    def per_second(self) -> float:
        """Ended attempts per second, over the time covered."""
        if self.since is None or self.until is None or self.until <= self.since:
            return 0.0
        return self.attempts / (self.until - self.since)


def read_recent_stats(
    history: History, attempts: int = MOST_ATTEMPTS, gauges: int = MOST_GAUGES
) -> RecentStats:
    """Statistics over the last attempts and gauges; `history` is the broker's verb."""
    ended = list(history(None, attempts, kind="attempt"))
    minutes = history(None, gauges, kind="gauge")
    # Rows of the oldest minute may be cut off by the bound.
    cut = minutes[0].at if len(minutes) >= gauges else None
    groups: dict[tuple[str, str], list[Event]] = {}
    for row in ended:
        groups.setdefault((row.queue or "", row.task or ""), []).append(row)
    tasks = [_task_stats(*names, rows) for names, rows in groups.items()]
    return RecentStats(
        tasks=sorted(tasks, key=lambda stats: (-stats.attempts, stats.queue, stats.task)),
        depths=_depths([row for row in minutes if row.at != cut] or minutes),
        attempts=len(ended),
        since=ended[0].at if ended else None,
        until=ended[-1].at if ended else None,
        whole=len(ended) < attempts,
    )


def wait_seconds(row: Event) -> float | None:
    """Seconds between when an attempt was due and when it began."""
    due = row.run_at or row.enqueued_at
    return None if due is None or row.started_at is None else max(0.0, row.started_at - due)


def run_seconds(row: Event) -> float | None:
    return None if row.started_at is None else max(0.0, row.at - row.started_at)


def _task_stats(queue: str, task: str, rows: Sequence[Event]) -> TaskStats:
    waits = sorted(wait for row in rows if (wait := wait_seconds(row)) is not None)
    runs = sorted(run for row in rows if (run := run_seconds(row)) is not None)
    return TaskStats(
        queue=queue,
        task=task,
        attempts=len(rows),
        succeeded=sum(row.state is State.SUCCEEDED for row in rows),
        failed=sum(row.state is State.FAILED for row in rows),
        again=sum(row.state is State.READY for row in rows),
        lapsed=sum(row.reason in LAPSED for row in rows),
        wait=_percentile(waits, 0.5),
        wait_p95=_percentile(waits, 0.95),
        run=_percentile(runs, 0.5),
        run_p95=_percentile(runs, 0.95),
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of the sorted values does not exceed."""
    return values[max(0, math.ceil(len(values) * share) - 1)] if values else None


def _depths(rows: Sequence[Event]) -> list[QueueDepth]:
    minutes: dict[float, dict[str, Any]] = {}
    for row in rows:
        try:
            gauge = msgspec.json.decode(row.data or b"", type=Gauge)
        except msgspec.MsgspecError:
            continue
        sums = minutes.setdefault(row.at, {})
        sums["ready"] = sums.get("ready", 0) + gauge.ready
        sums["running"] = sums.get("running", 0) + gauge.running
        sums["failed"] = sums.get("failed", 0) + gauge.failed
        sums["held"] = sums.get("held", 0) + gauge.paused + gauge.limited
        if gauge.oldest is not None:
            sums["oldest"] = max(sums.get("oldest") or 0.0, gauge.oldest)
    return [QueueDepth(at=at, **sums) for at, sums in sorted(minutes.items())]
