"""Marks of lakes in a table: a row for each, and what prune owes them.

Prune writes into a mark's gap what the lake will miss, in a transaction before the one that deletes
it: killed in between, a gap may name too much, never too little.
"""

from __future__ import annotations

import logging

import msgspec

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
from penstock.brokers.positions import number_of, position_text
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.errors import Refused

log = logging.getLogger("penstock")
_read = msgspec.json.Decoder(Mark).decode


class MarkRows:
    """Put, clear and list marks; and what prune owes their lakes."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.clock = store.clock

    def put(self, mark: Mark, author: str = "", reason: str = "") -> Mark:  # noqa: ARG002  a lake moves its mark, nobody else does
        with self.store.writing() as db:
            return self._put(db, mark)

    def _put(self, db: Db, mark: Mark) -> Mark:
        sql, now = self.store.sql, self.clock.now()
        check_mark(mark, position_text(db.execute(sql.newest).fetchone()["newest"]), number_of)
        # Serialises with other puts, and with prune.
        db.execute(sql.lock_marks)
        row = db.execute(sql.mark, (mark.lake,)).fetchone()
        kept = None if row is None else _mark(row)

        def pruned_to() -> Position | None:
            first = db.execute(sql.oldest_row).fetchone()["position"]
            return None if first is None else position_text(first - 1)

        after = moved(kept, mark, now, number_of, pruned_to)
        self._write(db, after)
        if says := mark_says(kept, after, number_of):
            self._tell_of(Change(self.store, db, now), says, after)
        return after

    def clear(self, lake: str, author: str = "", reason: str = "") -> bool:
        with self.store.writing() as db:
            row = db.execute(self.store.sql.mark, (lake,)).fetchone()
            cleared = db.execute(self.store.sql.clear_mark, (lake,)).rowcount
            if cleared:
                change = Change(self.store, db, self.clock.now())
                self._tell_of(change, "forgotten", _mark(row), legible(author), legible(reason))
        return bool(cleared)

    def all(self) -> list[Mark]:
        with self.store.reading() as db:
            return self.within(db)

    def within(self, db: Db) -> list[Mark]:
        rows = db.execute(self.store.sql.marks).fetchall()
        return sorted((_mark(row) for row in rows), key=lambda mark: mark.lake)

    def write_gaps(self, change: Change, before: float) -> None:
        """Write into the marks' gaps what this prune deletes before their lakes have it."""
        db, sql = change.db, self.store.sql
        if not self.within(db):
            return
        db.execute(sql.lock_marks)
        for mark in self.within(db):
            lost = {
                "before": before,
                "past": before - mark.hold,
                "known": number_of(known_to(mark, number_of)),
                "now": change.now,
            }
            row = db.execute(sql.past_hold, lost).fetchone()
            if row["rows"]:
                until = position_text(row["until"])
                after, tells = widened(mark, row["rows"], until, change.now, number_of)
                self._write(db, after)
                if tells:
                    self._tell_of(change, "gap", after)

    def _write(self, db: Db, mark: Mark) -> None:
        values = {
            "lake": mark.lake,
            "position": number_of(mark.position),
            "hold": mark.hold,
            "declared": msgspec.json.encode(mark).decode(),
        }
        db.execute(self.store.sql.set_mark, values)

    def _tell_of(
        self, change: Change, says: str, mark: Mark, author: str = "", reason: str = ""
    ) -> None:
        data = msgspec.json.encode(mark_data(says, mark, author, reason))
        change.add_event("lake", data, None, None)
        change.finish()


def _mark(row: Row) -> Mark:
    """The mark of a row; if it is damaged, what pruning goes by, so that this goes on."""
    try:
        mark = _read(row["declared"])
        number_of(known_to(mark, number_of))
        return mark
    except (msgspec.MsgspecError, UnicodeError, Refused) as error:
        log.error("the mark of lake %s cannot be read: %s", row["lake"], error)  # noqa: TRY400
        return Mark(lake=row["lake"], position=position_text(row["position"]), hold=row["hold"])
