"""The raw limits of PostgreSQL: rows of a job's size written through the driver."""

from __future__ import annotations

import time

import psycopg

from penstock.enqueue.ids import Ids, to_bytes
from penstock.tools.bench.postgres.statements import sql

ROWS_PER_COMMIT = 100_000
_BODY = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'


def copy(url: str, rows: int) -> float:
    """Rows per second by COPY and `write_row`, 100,000 per commit."""
    ids = Ids()
    values = [(to_bytes(ids.next()), 7, _BODY) for _ in range(rows)]
    with psycopg.connect(url) as connection:
        connection.execute(sql.raw_table)
        connection.commit()
        began = time.perf_counter()
        for first in range(0, rows, ROWS_PER_COMMIT):
            with connection.cursor() as cursor, cursor.copy(sql.raw_copy) as copy_rows:
                copy_rows.set_types(("bytea", "int8", "bytea"))
                for row in values[first : first + ROWS_PER_COMMIT]:
                    copy_rows.write_row(row)
            connection.commit()
        return rows / (time.perf_counter() - began)


def copy_keyed(url: str, rows: int) -> float:
    """Rows per second into copies of `job` and `sent`, each row with a key; a store is there."""
    ids, now = Ids(), time.time()
    values = [
        (to_bytes(ids.first()), 7, "ready", now, now, f"customer-{number % 1000}", _BODY)
        for number in range(rows)
    ]
    with psycopg.connect(url) as connection:
        connection.execute(sql.raw_job_tables)
        connection.commit()
        began = time.perf_counter()
        for first in range(0, rows, ROWS_PER_COMMIT):
            page = values[first : first + ROWS_PER_COMMIT]
            with connection.cursor() as cursor, cursor.copy(sql.raw_copy_sent) as copy_rows:
                copy_rows.set_types(("bytea", "int4", "int8"))
                for row in page:
                    copy_rows.write_row((row[0], 1, row[1]))
            with connection.cursor() as cursor, cursor.copy(sql.raw_copy_jobs) as copy_rows:
                copy_rows.set_types(("bytea", "int8", "text", "float8", "float8", "text", "bytea"))
                for row in page:
                    copy_rows.write_row(row)
            connection.commit()
        return rows / (time.perf_counter() - began)


def single(url: str, rows: int) -> float:
    """Commits per second of one row each, by a prepared insert."""
    ids = Ids()
    values = [(to_bytes(ids.next()), 7, _BODY) for _ in range(rows)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.raw_table)
        began = time.perf_counter()
        for row in values:
            connection.execute(sql.raw_insert, row, prepare=True)
        return rows / (time.perf_counter() - began)
