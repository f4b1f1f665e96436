"""How long an attempt waited and ran, and whether its worker was gone, from its row of history."""

from __future__ import annotations

from penstock.broker.views import Event

LAPSED = frozenset({"crashed", "lost"})  # reasons of attempts whose worker was gone


def wait_seconds(row: Event) -> float | None:
    """Seconds between when an attempt was due and when it began."""
    due = row.run_at or row.enqueued_at
    return None if due is None or row.started_at is None else max(0.0, row.started_at - due)


def run_seconds(row: Event) -> float | None:
    return None if row.started_at is None else max(0.0, row.at - row.started_at)
