"""Records: what a store keeps beside jobs, each under an id of its own.

A rule, a schedule and the mark of a lake are records: values that are put, listed and cleared
by the same three verbs. A new kind of record is a new value and a table for it, not a new verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from penstock.broker.lake_mark import Mark
from penstock.errors import Refused
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

Record = Rule | Schedule | Mark
R = TypeVar("R", bound=Record)


class RecordTable(Protocol[R]):
    """Where a store keeps the records of one kind."""

    def put(self, record: R, author: str, reason: str, /) -> R: ...

    def clear(self, record_id: str, author: str, reason: str, /) -> bool: ...

    def all(self) -> list[R]: ...


class Records:
    """The verbs `put`, `clear` and `records` of a store, over a table for each kind."""

    def __init__(
        self, rules: RecordTable[Rule], schedules: RecordTable[Schedule], marks: RecordTable[Mark]
    ) -> None:
        self._tables: Mapping[type, RecordTable[Any]] = {
            Rule: rules,
            Schedule: schedules,
            Mark: marks,
        }

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        return self._table(type(record)).put(record, author, reason)

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        return self._table(kind).clear(record_id, author, reason)

    def records(self, kind: type[R]) -> list[R]:
        return self._table(kind).all()

    def _table(self, kind: type) -> RecordTable[Any]:
        try:
            return self._tables[kind]
        except KeyError:
            known = ", ".join(sorted(each.__name__ for each in self._tables))
            raise Refused(f"{kind.__name__} is no record of a store; there are {known}") from None
