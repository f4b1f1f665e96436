"""One transaction's change: its counts and its history rows, written at its end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.brokers.sqlite.rows import text_of
from penstock.brokers.sqlite.statements import many, sql
from penstock.brokers.sqlite.store import Db
from penstock.ids import to_bytes
from penstock.job import Job, State

_EVENT = "(" + ", ".join("?" * 21) + ")"
_SUCCEED = "('attempt', ?, ?, ?, 1, 'succeeded', ?, ?, ?, ?, ?, ?)"
_CHUNKS = (512, 64, 8, 1)


class Change:
    """Made by every verb that writes: `finish` goes last before the commit."""

    __slots__ = ("db", "events", "now", "successes", "tally")

    def __init__(self, db: Db, now: float) -> None:
        self.db = db
        self.now = now
        self.tally: Counter[tuple[int, State, int]] = Counter()
        self.events: list[Any] = []  # parameters of event.sql, row after row
        self.successes: list[Any] = []  # and of succeed.sql: the hot path binds half as many

    def happened(self, kind: str, data: bytes, job: Job[Any] | None, lane: int | None) -> None:
        """One of the rarer events: who asked for what, how far a job got."""
        if job is None:
            self.events += (kind, self.now, *(None,) * 3, 0, 0, 0, *(None,) * 11, data, None)
        else:
            self.events += (
                *(kind, self.now, to_bytes(job.id), lane, job.attempt),
                *(job.failures, job.lapses, job.repeats, job.state, job.reason, job.key),
                *(job.enqueued_at, job.run_at, None, job.worker, text_of(job.tags)),
                *(None, None, None, data, None),
            )

    def finish(self) -> None:
        """Write the counts, one per lane, state and minute, and the history."""
        self._insert(sql.succeed, _SUCCEED, self.successes)
        self._insert(sql.event, _EVENT, self.events)
        counts = [(*place, jobs) for place, jobs in self.tally.items() if jobs]
        if counts:
            self.db.executemany(sql.tally, counts)
        self.tally.clear()
        self.events.clear()
        self.successes.clear()

    def _insert(self, statement: str, row: str, values: list[Any]) -> None:
        # Many rows to a statement: one statement is one step of SQLite, so that the interpreter is
        # let go of once and not once a row; when hands are busy each return may wait 5 ms.
        width = row.count("?")
        start, left = 0, len(values) // width
        for size in _CHUNKS:
            while left >= size:
                end = start + size * width
                self.db.execute(many(statement, row, size), values[start:end])
                start, left = end, left - size
