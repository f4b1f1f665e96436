"""One transaction in a SQLite file, as the shared verbs ask for it.

Rows are read by name, whatever the owner of the connection set: it may be a caller's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.brokers.sqlite.statements import many
from penstock.brokers.tables.db import Row

_CHUNKS = (512, 64, 8, 1)  # rows to an insert


class SqliteDb:
    """One transaction's view of a connection: rows by name, whatever the connection's owner set."""

    __slots__ = ("connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        self.connection.cursor().executemany(statement, parameters)

    def each(self, statement: str, parameters: Iterable[Any]) -> list[Row | None]:
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return [cursor.execute(statement, some).fetchone() for some in parameters]

    def every(self, statement: str, parameters: Iterable[Any]) -> list[list[Row]]:
        return [self.execute(statement, some).fetchall() for some in parameters]

    def insert(self, statement: str, width: int, values: Sequence[Any]) -> None:
        # Many rows to a statement: one statement is one step of SQLite, so that the interpreter is
        # let go of once and not once a row; when hands are busy each return may wait 5 ms.
        start, left = 0, len(values) // width
        for size in _CHUNKS:
            while left >= size:
                end = start + size * width
                self.execute(many(statement, size), values[start:end])
                start, left = end, left - size
