"""The statements of this broker: one file each, named after the verb they serve."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from penstock.brokers.tables import statements
from penstock.brokers.tables.statements import Statements

_FOLDER = Path(__file__).parent

sql = Statements(_FOLDER / "sql")


@cache
def many(statement: str, rows: int) -> str:
    """An insert of one row as one of so many."""
    into, values, row = statement.rstrip().removesuffix(";").rpartition("values")
    return into + values + ", ".join([row] * rows)


def migrations() -> list[tuple[int, str]]:
    """The numbered steps that lead to schema.sql."""
    return statements.migrations(_FOLDER / "migrations")
