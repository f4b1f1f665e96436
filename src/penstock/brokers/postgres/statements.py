"""The statements of this broker, and the functions that it brings into a database."""

from __future__ import annotations

from pathlib import Path

from penstock.brokers.tables.statements import Statements

_FOLDER = Path(__file__).parent

sql = Statements(_FOLDER / "sql")


def functions() -> str:
    """All functions, made or replaced; those that others call come first."""
    paths = sorted((_FOLDER / "functions").glob("*.sql"), key=lambda path: path.stem)
    paths.sort(key=lambda path: path.stem != "packed")
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
