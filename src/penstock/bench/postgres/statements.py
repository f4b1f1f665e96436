"""The statements that the benchmark itself sends, a file each."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString, cast

_FOLDER = Path(__file__).parent / "sql"


def statement(name: str) -> LiteralString:
    """The text of sql/NAME.sql, which nobody but us writes."""
    return cast("LiteralString", (_FOLDER / f"{name}.sql").read_text(encoding="utf-8"))
