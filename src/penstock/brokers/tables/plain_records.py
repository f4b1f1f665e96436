"""Plain records in a table: a row for each, its kind, its id, and the record as JSON."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import msgspec

from penstock.broker.records import PlainKind
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.rule_rows import RuleRows
from penstock.brokers.tables.worker_rows import rules_in_force

log = logging.getLogger("penstock")


class PlainRecordRows:
    """Put, clear and list the records of one kind."""

    def __init__(self, store: TableStore, rules: RuleRows, kind: PlainKind) -> None:
        self.store = store
        self._rules = rules
        self._kind = kind
        self._read = partial(msgspec.json.decode, type=kind.type)

    def put(self, record: Any, author: str, reason: str) -> Any:
        kind = self._kind
        record = kind.signed(record, author, reason)
        kind.check(record)
        id = kind.id_of(record)
        with self.store.writing() as db:
            now = self.store.clock.now()
            # Locked, so that of two that put one at once the second compares with the first.
            row = None
            while row is None:  # unless somebody clears it in between
                db.execute(self.store.sql.new_record, (kind.name, id))
                row = db.execute(self.store.sql.locked_record, (kind.name, id)).fetchone()
            before = self._record(row)
            after = kind.replaced(before, record, now)
            if after is not before:
                declared = msgspec.json.encode(after).decode()
                db.execute(self.store.sql.put_record, (declared, kind.name, id))
                self._changed(db, (before, after), author, reason)
        if after is not before:
            self._tell(before, after)
        return after

    def clear(self, record_id: str, author: str, reason: str) -> bool:
        with self.store.writing() as db:
            place = (self._kind.name, record_id)
            row = db.execute(self.store.sql.locked_record, place).fetchone()
            before = None if row is None else self._record(row)
            cleared = db.execute(self.store.sql.clear_record, place).rowcount
            if before is not None:
                self._changed(db, (before, None), author, reason)
        if cleared:
            self._tell(before, None)
        return bool(cleared)

    def all(self) -> list[Any]:
        with self.store.reading() as db:
            rows = db.execute(self.store.sql.records, (self._kind.name,)).fetchall()
        found = [record for row in rows if (record := self._record(row)) is not None]
        return sorted(found, key=self._kind.id_of)

    def _changed(self, db: Db, both: tuple[Any, Any], author: str, reason: str) -> None:
        kind, store, now = self._kind, self.store, self.store.clock.now()
        if kind.rules is not None:
            clear, put = kind.rule_changes(*both, rules_in_force(store, db, now))
            for rule in clear:
                self._rules.clear_within(db, rule.id, author, reason, told=not kind.parts)
            for rule in put:
                self._rules.put_within(db, rule, told=not kind.parts)
        data = kind.event(*both, author, reason)
        if data is None:
            return
        change = Change(store, db, now)
        change.add_event(kind.event_name, msgspec.json.encode(data), None, None)
        change.finish()

    def _tell(self, before: Any, after: Any) -> None:
        kind = self._kind
        if kind.parts and kind.rules_of(before) == kind.rules_of(after):
            return  # dealt out anew, and as it was
        if kind.rules is not None:
            self.store.rules_changed(stop=False)
            self.store.notify()

    def _record(self, row: Row) -> Any:
        """The record of a row; None if it is new, or damaged, so that the others go on."""
        if not row["declared"]:
            return None
        try:
            return self._read(row["declared"])
        except (msgspec.MsgspecError, UnicodeError) as error:
            log.error("a %s that cannot be read is left out: %s", self._kind.name, error)  # noqa: TRY400
            return None
