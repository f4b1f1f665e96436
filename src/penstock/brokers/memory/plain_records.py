"""Plain records in memory: a dictionary by id for each kind."""

from __future__ import annotations

from typing import Any

from penstock.broker.records import PlainKind
from penstock.brokers.memory.rules import MemoryRules
from penstock.brokers.memory.store import MemoryStore


class MemoryRecords:
    """The records of one kind; the broker holds its one lock around every verb."""

    def __init__(self, store: MemoryStore, rules: MemoryRules, kind: PlainKind) -> None:
        self._store = store
        self._rules = rules
        self._kind = kind
        self._kept = store.plain_records[kind.name]

    def put(self, record: Any, author: str, reason: str) -> Any:
        kind = self._kind
        record = kind.signed(record, author, reason)
        kind.check(record)
        id = kind.id_of(record)
        before = self._kept.get(id)
        after = kind.replaced(before, record, self._store.clock.now())
        if after is not before:
            self._kept[id] = after
            self._changed(before, after, author, reason)
        return after

    def clear(self, record_id: str, author: str, reason: str) -> bool:
        before = self._kept.pop(record_id, None)
        if before is None:
            return False
        self._changed(before, None, author, reason)
        return True

    def all(self) -> list[Any]:
        return [self._kept[id] for id in sorted(self._kept)]

    def _changed(self, before: Any, after: Any, author: str, reason: str) -> None:
        kind, rules = self._kind, self._rules
        if kind.rules is not None:
            clear, put = kind.rule_changes(before, after, rules.all())
            for rule in clear:
                rules.clear(rule.id, author, reason, told=not kind.parts)
            for rule in put:
                rules.put_checked(rule, told=not kind.parts)
            self._store.rules_version += 1
        data = kind.event(before, after, author, reason)
        if data is not None:
            self._store.record(kind.event_name, data=data)
