"""Marks of lakes in memory: a dictionary by lake, and which rows of the history stay for them.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

from penstock.broker.checks import legible
from penstock.broker.lake_mark import (
    Mark,
    check_mark,
    known_to,
    mark_data,
    mark_says,
    moved,
    widened,
)
from penstock.broker.position import Position
from penstock.broker.views import Event
from penstock.brokers.memory.store import MemoryStore
from penstock.brokers.positions import number_of, own, position_text


class Marks:
    """How far every lake has the history."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept = store.marks

    def put(self, mark: Mark, author: str, reason: str) -> Mark:  # noqa: ARG002  a lake moves its mark, nobody else does
        check_mark(mark, self._store.newest, own)
        kept = self._kept.get(mark.lake)
        after = moved(kept, mark, self._store.clock.now(), own, self._pruned_to)
        self._kept[mark.lake] = after
        if says := mark_says(kept, after, own):
            self._tell_of(says, after)
        return after

    def clear(self, lake: str, author: str, reason: str) -> bool:
        gone = self._kept.pop(lake, None)
        if gone is not None:
            self._tell_of("forgotten", gone, legible(author), legible(reason))
        return gone is not None

    def all(self) -> list[Mark]:
        return [self._kept[lake] for lake in sorted(self._kept)]

    def hold(self, event: Event, before: float) -> bool:
        """Whether a lake needs this row yet, and its time is not over."""
        return any(
            mark.position < event.position and event.at >= before - mark.hold
            for mark in self._kept.values()
        )

    def write_gaps(self, before: float) -> None:
        """Name what a prune takes away from lakes that have it not yet."""
        now = self._store.clock.now()
        for mark in self.all():
            known = known_to(mark, own)
            lost = [
                event.position
                for event in self._store.rows_before(before)
                if event.position > known
                and not self.hold(event, before)
                and not self._store.stays(event)
            ]
            if lost:
                self._kept[mark.lake], tells = widened(mark, len(lost), max(lost), now, own)
                if tells:
                    self._tell_of("gap", self._kept[mark.lake])

    def _pruned_to(self) -> Position | None:
        for row in self._store.history:
            if not self._store.stays(row):
                return position_text(number_of(row.position) - 1)
        return None

    def _tell_of(self, says: str, mark: Mark, author: str = "", reason: str = "") -> None:
        self._store.record("lake", data=mark_data(says, mark, author, reason))
