"""The raw limit of SQLite: rows of a job's size inserted through the driver."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from penstock.brokers.sql_files import SqlFiles
from penstock.enqueue.ids import Ids, to_bytes

ROWS_PER_COMMIT = 10_000
_BODY = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'


class RawStatements(SqlFiles):
    """One table, one insert."""

    raw_insert: str
    raw_table: str


sql = RawStatements(Path(__file__).parent / "sql")


def bulk(folder: Path, rows: int) -> float:
    """Rows per second by executemany, 10,000 per commit."""
    connection = _table(folder / "raw-bulk.db")
    ids = Ids()
    values = [(to_bytes(ids.next()), 7, _BODY) for _ in range(rows)]
    began = time.perf_counter()
    for first in range(0, rows, ROWS_PER_COMMIT):
        connection.execute("begin immediate")
        connection.executemany(sql.raw_insert, values[first : first + ROWS_PER_COMMIT])
        connection.execute("commit")
    seconds = time.perf_counter() - began
    connection.close()
    return rows / seconds


def single(folder: Path, rows: int) -> float:
    """Commits per second of one row each."""
    connection = _table(folder / "raw-single.db")
    began = time.perf_counter()
    for _ in range(rows):
        connection.execute("begin immediate")
        connection.execute(sql.raw_insert, (os.urandom(16), 7, _BODY))
        connection.execute("commit")
    seconds = time.perf_counter() - began
    connection.close()
    return rows / seconds


def _table(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma cache_size = -65536")
    connection.execute("pragma wal_autocheckpoint = 4000")
    connection.execute(sql.raw_table)
    return connection
