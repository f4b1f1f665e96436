"""The SQL statements of the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

from penstock.brokers.sql_files import SqlFiles


class BenchStatements(SqlFiles):
    """The statements of sql/."""

    calls: LiteralString
    ended: LiteralString
    facts: LiteralString
    has_statements: LiteralString
    meter: LiteralString
    raw_copy: LiteralString
    raw_copy_jobs: LiteralString
    raw_copy_sent: LiteralString
    raw_insert: LiteralString
    raw_job_tables: LiteralString
    raw_table: LiteralString
    snapshot: LiteralString
    span: LiteralString


sql = BenchStatements(Path(__file__).parent / "sql")
