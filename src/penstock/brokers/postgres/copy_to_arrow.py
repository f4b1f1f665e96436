"""COPY out of the server, straight into Arrow: no row becomes an object of Python's.

psycopg's own way costs some microseconds a row, most of it for waiting row by row; here rows are
taken off the line as they lie there, and read some megabytes at a time.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import psycopg
from psycopg import errors, pq

from penstock.broker.slice import HISTORY
from penstock.brokers.arrow import EVENT_COLUMNS, JOB_COLUMNS, arrow, schema_of
from penstock.brokers.postgres.connection import Connection, Overdue

CHUNK_BYTES = 4 * 1024 * 1024


def copy_batches(
    connection: Connection, statement: str, parameters: Mapping[str, Any], table: str
) -> Iterator[Any]:
    """What a `copy ... to stdout (format csv)` of a table's columns gives, as record batches."""
    # COPY takes no parameters: they are written into it here, quoted by the driver.
    whole = psycopg.ClientCursor(connection).mogrify(statement.encode(), parameters)
    for chunk in _chunks(connection, whole.encode()):
        yield from _read(chunk, table)


def _read(chunk: bytes, table: str) -> Iterator[Any]:
    pa, csv, schema = arrow(), import_module("pyarrow.csv"), schema_of(table)
    kinds = EVENT_COLUMNS if table in HISTORY else JOB_COLUMNS
    types = {
        name: pa.int64() if kind == "time" else schema.field(name).type
        for name, kind in kinds.items()
    }
    read: Any = csv.read_csv(
        pa.BufferReader(chunk),
        # In one block, however wide a row is.
        read_options=csv.ReadOptions(
            column_names=list(kinds), block_size=len(chunk) + 1, use_threads=False
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # What is null is empty and without quotes; an empty text has them.
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in read.to_batches():
        arrays = [column.cast(schema.field(place).type) for place, column in enumerate(batch)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunks(connection: Connection, statement: bytes) -> Iterator[bytes]:
    """Whole rows, some megabytes at a time; whoever stops half-way leaves the line closed."""
    wire: Any = connection.pgconn
    poll = select.poll()
    poll.register(wire.socket, select.POLLIN)
    done = False
    try:
        wire.send_query(statement)
        wire.flush()
        _begin(connection, poll)
        parts: list[bytes] = []
        size, take = 0, wire.get_copy_data
        while True:
            length, data = take(1)
            if length > 0:
                parts.append(data)
                size += length
                if size < CHUNK_BYTES:
                    continue
            elif length == 0:
                _wait(connection, poll)
                continue
            if parts:
                yield b"".join(parts)
                parts, size = [], 0
            if length < 0:
                break
        _end(connection, poll)
        done = True
    except psycopg.Error:
        done = wire.status == pq.ConnStatus.OK
        raise
    finally:
        if not done:
            wire.finish()  # the rest is on the way, and belongs to nobody


def _begin(connection: Connection, poll: Any) -> None:
    wire: Any = connection.pgconn
    while wire.is_busy():
        _wait(connection, poll)
    result = wire.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_OUT:
        _end(connection, poll, result)


def _end(connection: Connection, poll: Any, trouble: Any = None) -> None:
    wire: Any = connection.pgconn
    while True:
        while wire.is_busy():
            _wait(connection, poll)
        result = wire.get_result()
        if result is None:
            break
        if result.status == pq.ExecStatus.FATAL_ERROR:
            trouble = result
    if trouble is not None:
        raise errors.error_from_result(trouble)


def _wait(connection: Connection, poll: Any) -> None:
    until = time.monotonic() + connection.patience
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        connection.pgconn.finish()
        raise Overdue(f"no answer within {connection.patience:.0f} s")
    connection.pgconn.consume_input()
