"""COPY from the server straight into Arrow, without a Python object per row.

psycopg's copy costs some microseconds a row, most of it for waiting row by row; here whatever has
arrived is taken at once, and parsed some megabytes at a time.
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
from penstock.brokers.postgres.connection import Connection

CHUNK_BYTES = 4 * 1024 * 1024


def copy_batches(
    connection: Connection, statement: str, parameters: Mapping[str, Any], table: str
) -> Iterator[Any]:
    """The rows of a `copy ... to stdout (format csv)` of a table's columns, as record batches."""
    # COPY takes no parameters: psycopg quotes them and writes them into the statement.
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
        # One block for the whole chunk: a row may be wider than a default block.
        read_options=csv.ReadOptions(
            column_names=list(kinds), block_size=len(chunk) + 1, use_threads=False
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # In COPY's CSV null is empty without quotes, and an empty text is quoted.
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in read.to_batches():
        arrays = [column.cast(schema.field(index).type) for index, column in enumerate(batch)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunks(connection: Connection, statement: bytes) -> Iterator[bytes]:
    """Whole rows, some megabytes at a time; a reader that stops early closes the connection."""
    wire: Any = connection.pgconn
    poll = select.poll()
    poll.register(wire.socket, select.POLLIN)
    done = False
    try:
        wire.send_query(statement)
        wire.flush()
        result = _next_result(connection, poll)
        if result is None or result.status != pq.ExecStatus.COPY_OUT:
            _finish(connection, poll, result)
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
        _finish(connection, poll)
        done = True
    except psycopg.Error:
        done = wire.status == pq.ConnStatus.OK
        raise
    finally:
        if not done:
            wire.finish()  # the rest of the rows would be read as the answer of the next call


def _next_result(connection: Connection, poll: select.poll) -> Any:
    wire: Any = connection.pgconn
    while wire.is_busy():
        _wait(connection, poll)
    return wire.get_result()


def _finish(connection: Connection, poll: select.poll, failed: Any = None) -> None:
    """Read what is left of the answer; raise if the statement failed."""
    while (result := _next_result(connection, poll)) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            failed = result
    if failed is not None:
        raise errors.error_from_result(failed)


def _wait(connection: Connection, poll: select.poll) -> None:
    connection.wait_for_input(poll, time.monotonic() + connection.call_seconds)
