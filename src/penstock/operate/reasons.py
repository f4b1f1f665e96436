"""Why attempts ended and jobs went back: counts by queue, outcome and reason.

Ends come from the history, newest first, up to a time and a number of rows. Jobs that went back
before they began leave no row; the workers that are alive say how many they put back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.views import Event, WorkerRow
from penstock.job import State

MOST_ROWS = 100_000
PUT_BACK = "put back"
_PAGE = 5_000
_WORDS = {State.READY: "again"}


class ReasonCount(msgspec.Struct, frozen=True):
    """So many attempts at jobs of a queue led there, for this reason."""

    queue: str
    outcome: str  # succeeded, failed, cancelled, again; or put back
    reason: str
    count: int


class Reasons(msgspec.Struct, frozen=True):
    """Reasons, most frequent first. `since`: ends before that are not counted."""

    since: float
    counts: list[ReasonCount]


def outcome_and_reason(row: Event) -> tuple[str, str] | None:
    """Where this row of the history led, and why; None if it is no end, and no attempt."""
    ended_unrun = row.kind == "cancel" and row.state is State.CANCELLED
    if row.kind != "attempt" and not ended_unrun:
        return None
    state = row.state or State.READY
    none = "completed" if state is State.SUCCEEDED else "none"
    return _WORDS.get(state, state.value), row.reason or none


def read_reasons(broker: Broker, since: float, most_rows: int = MOST_ROWS) -> Reasons:
    """The reasons of ends since then, and of jobs that workers which are alive put back."""
    found: Counter[tuple[str, str, str]] = Counter()
    reached = since
    for kind in ("attempt", "cancel"):
        before, left = None, most_rows
        while True:
            rows = broker.history(None, min(_PAGE, left), kind=kind, before=before)
            _count(found, (row for row in rows if row.at >= since))
            left -= len(rows)
            if len(rows) < _PAGE or rows[0].at < since:
                break
            if left <= 0:
                reached = max(reached, rows[0].at)
                break
            before = rows[0].position
    for row in broker.workers():
        _count_put_backs(found, row)
    counts = [ReasonCount(*key, number) for key, number in found.items()]
    counts.sort(key=lambda each: (-each.count, each.queue, each.outcome, each.reason))
    return Reasons(reached, counts)


def _count(found: Counter[tuple[str, str, str]], rows: Iterable[Event]) -> None:
    for row in rows:
        if (way := outcome_and_reason(row)) is not None:
            found[row.queue or "", *way] += 1


def _count_put_backs(found: Counter[tuple[str, str, str]], row: WorkerRow) -> None:
    for queue, reasons in row.put_back.items():
        for reason, number in reasons.items():
            found[queue, PUT_BACK, reason] += number
