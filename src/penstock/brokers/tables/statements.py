"""Statements: one file each, named after the verb they serve."""

from __future__ import annotations

from pathlib import Path


class Statements:
    """The SQL files of a folder as attributes."""

    def __init__(self, folder: Path) -> None:
        for path in folder.glob("*.sql"):
            setattr(self, path.stem, path.read_text(encoding="utf-8"))

    def __getattr__(self, name: str) -> str:
        message = f"there is no statement {name}.sql"
        raise AttributeError(message)


def migrations(folder: Path) -> list[tuple[int, str]]:
    """The numbered steps that lead to schema.sql."""
    return [
        (int(path.name[:4]), path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("[0-9]*.sql"))
    ]
