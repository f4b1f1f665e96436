"""What a measurement cost the server: WAL, transactions, and statements if those are counted.

The server's counters are read before and after it. WAL is that of the whole server, so nothing else
should run on it meanwhile.
"""

from __future__ import annotations

import time
from typing import Any, LiteralString, NamedTuple

import psycopg

from penstock.tools.bench.postgres.statements import sql

_STATISTICS_SECONDS = 0.3  # the server adds a session's counters when it ends


class MeterReading(NamedTuple):
    wal_bytes: int
    full_pages: int
    transactions: int
    statements: int | None  # None: without pg_stat_statements


def read(url: str) -> MeterReading:
    """The counters now."""
    time.sleep(_STATISTICS_SECONDS)
    with psycopg.connect(url, autocommit=True) as connection:
        wal, pages, transactions = _row(connection, sql.meter)
        counted = _row(connection, sql.has_statements)[0]
        statements = _row(connection, sql.calls)[0] if counted else None
    return MeterReading(wal, pages, transactions, statements)


def cost(name: str, before: MeterReading, after: MeterReading, jobs: int) -> dict[str, float]:
    """Per job: bytes of WAL, transactions, statements."""
    figures = {
        f"{name}_wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / jobs,
        f"{name}_full_pages": float(after.full_pages - before.full_pages),
        f"{name}_transactions_per_job": (after.transactions - before.transactions) / jobs,
    }
    if before.statements is not None and after.statements is not None:
        figures[f"{name}_statements_per_job"] = (after.statements - before.statements) / jobs
    return figures


def facts(url: str) -> dict[str, str]:
    """The server's settings that the figures depend on."""
    with psycopg.connect(url) as connection:
        return dict(connection.execute(sql.facts).fetchall())


def _row(connection: psycopg.Connection[Any], statement: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(statement).fetchone()
    return tuple(row or ())
