"""What happened lately, as the store itself can tell: rates, waits, runs and failures per task.

Read from the last rows of the history, so many and no more, however large it is: whoever shows it
says how far that went. Longer stretches are the lake's.
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
_LATE = 0.95

History = Callable[..., Sequence[Event]]


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempts of one task in one queue; times are in seconds."""

    queue: str
    task: str
    attempts: int = 0
    succeeded: int = 0
    failed: int = 0  # for good
    again: int = 0  # attempts after which the job is to run again
    lapsed: int = 0  # of those, or of the failed: their worker was gone
    wait: float | None = None  # half of them waited for no longer
    wait_late: float | None = None  # 19 of 20 did
    run: float | None = None
    run_late: float | None = None


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together at one minute."""

    at: float
    ready: int = 0
    running: int = 0
    failed: int = 0
    held: int = 0  # paused or limited
    oldest: float | None = None


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """How far it was looked, and what was found there."""

    tasks: Sequence[Lately] = ()  # most attempts first
    depths: Sequence[Depth] = ()  # oldest first
    attempts: int = 0
    since: float | None = None
    until: float | None = None
    whole: bool = True  # these are all attempts that the history has

    @property
    def per_second(self) -> float:
        """Attempts that ended, over the stretch that was looked at."""
        if self.since is None or self.until is None or self.until <= self.since:
            return 0.0
        return self.attempts / (self.until - self.since)


def read_recent(
    history: History, attempts: int = MOST_ATTEMPTS, gauges: int = MOST_GAUGES
) -> Recent:
    """The last attempts and gauges; `history` is the verb."""
    ended = list(history(None, attempts, kind="attempt"))
    minutes = history(None, gauges, kind="gauge")
    # The oldest minute may have lost some of its queues to the bound.
    cut = minutes[0].at if len(minutes) >= gauges else None
    groups: dict[tuple[str, str], list[Event]] = {}
    for row in ended:
        groups.setdefault((row.queue or "", row.task or ""), []).append(row)
    tasks = [_lately(*names, rows) for names, rows in groups.items()]
    return Recent(
        tasks=sorted(tasks, key=lambda each: (-each.attempts, each.queue, each.task)),
        depths=_depths([row for row in minutes if row.at != cut] or minutes),
        attempts=len(ended),
        since=ended[0].at if ended else None,
        until=ended[-1].at if ended else None,
        whole=len(ended) < attempts,
    )


def waited(row: Event) -> float | None:
    """Seconds between when an attempt was due and when it began."""
    due = row.run_at or row.enqueued_at
    return None if due is None or row.started_at is None else max(0.0, row.started_at - due)


def ran(row: Event) -> float | None:
    return None if row.started_at is None else max(0.0, row.at - row.started_at)


def _lately(queue: str, task: str, rows: Sequence[Event]) -> Lately:
    waits = sorted(wait for row in rows if (wait := waited(row)) is not None)
    runs = sorted(run for row in rows if (run := ran(row)) is not None)
    return Lately(
        queue=queue,
        task=task,
        attempts=len(rows),
        succeeded=sum(row.state is State.SUCCEEDED for row in rows),
        failed=sum(row.state is State.FAILED for row in rows),
        again=sum(row.state is State.READY for row in rows),
        lapsed=sum(row.reason in LAPSED for row in rows),
        wait=_below(waits, 0.5),
        wait_late=_below(waits, _LATE),
        run=_below(runs, 0.5),
        run_late=_below(runs, _LATE),
    )


LAPSED = frozenset({"crashed", "lost"})  # the reasons of an attempt whose worker was gone


def _below(values: Sequence[float], share: float) -> float | None:
    """A value that this share of them does not exceed."""
    return values[max(0, math.ceil(len(values) * share) - 1)] if values else None


def _depths(rows: Sequence[Event]) -> list[Depth]:
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
    return [Depth(at=at, **sums) for at, sums in sorted(minutes.items())]
