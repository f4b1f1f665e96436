"""The statements of this broker, and the functions and migrations that it brings into a database."""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.brokers.tables.statements import Statements, migrations

_FOLDER = Path(__file__).parent

sql = Statements(_FOLDER / "sql")


def steps() -> list[tuple[int, str]]:
    """The numbered steps that lead to schema.sql."""
    return migrations(_FOLDER / "migrations")


def functions() -> str:
    """All functions, made or replaced; those that others call come first."""
    paths = sorted((_FOLDER / "functions").glob("*.sql"), key=lambda path: path.stem)
    paths.sort(key=lambda path: path.stem != "packed")
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def functions_digest() -> str:
    """Tells one set of functions from another."""
    return hashlib.blake2b(functions().encode(), digest_size=8).hexdigest()
