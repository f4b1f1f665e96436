"""The statements that the benchmark itself sends."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

from penstock.brokers.sql_files import SqlFiles


class BenchStatements(SqlFiles):
    """Files that nobody but us writes."""

    calls: LiteralString
    ended: LiteralString
    facts: LiteralString
    has_statements: LiteralString
    meter: LiteralString
    raw_copy: LiteralString
    raw_insert: LiteralString
    raw_table: LiteralString
    snapshot: LiteralString
    span: LiteralString


sql = BenchStatements(Path(__file__).parent / "sql")
