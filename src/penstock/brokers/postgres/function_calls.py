"""Calls of our SQL functions in PostgreSQL's binary protocol: the hot path of every verb.

A statement through psycopg's cursor costs 40 us of Python before anything is sent, as much as the
server needs to store a job. Here the caller encodes the parameters, and the answer is rows of raw
bytes. Statements that are not hot go through the cursor.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from penstock.brokers.postgres.connection import Connection

# Type numbers (OIDs) of PostgreSQL.
UUID, TEXT, FLOAT8, INT4, INT8, BYTEA, BOOL = 2950, 25, 701, 23, 20, 17, 16
UUID_ARRAY, FLOAT8_ARRAY, INT4_ARRAY, INT8_ARRAY, BYTEA_ARRAY = 2951, 1022, 1007, 1016, 1001

_BINARY = [1] * 32

int8 = struct.Struct(">q").pack
int4 = struct.Struct(">i").pack
float8 = struct.Struct(">d").pack


def text(value: str | None) -> bytes | None:
    return None if value is None else value.replace("\x00", "\N{SYMBOL FOR NULL}").encode()


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


class Call:
    """A statement with parameters of these types; prepared once on each connection."""

    __slots__ = ("formats", "name", "statement", "types")

    def __init__(self, name: str, statement: str, types: Sequence[int]) -> None:
        self.name = f"penstock_{name}".encode()
        self.statement = statement.encode()
        self.types = types
        self.formats = _BINARY[: len(types)]


Answer = list[list[bytes | None]]


def call(connection: Connection, function: Call, values: Sequence[bytes | None]) -> Answer:
    """Call it and return the rows of its answer, each field as bytes."""
    wire = connection.pgconn
    try:
        if not connection.prepares:
            wire.send_query_params(
                function.statement, values, function.types, function.formats, pq.Format.BINARY
            )
        else:
            if function.name not in connection.prepared:
                wire.send_prepare(function.name, function.statement, function.types)
                _read_answer(connection)
                connection.prepared.add(function.name)
            wire.send_query_prepared(function.name, values, function.formats, pq.Format.BINARY)
        return _read_answer(connection)
    except psycopg.Error:
        if wire.status != pq.ConnStatus.OK:
            wire.finish()
        raise
    except BaseException:
        wire.finish()  # its answer would be read as that of the next call
        raise


def _read_answer(connection: Connection) -> Answer:
    wire = connection.pgconn
    until = time.monotonic() + connection.call_seconds
    poll = select.poll()
    poll.register(wire.socket, select.POLLIN)
    while wire.flush():
        poll.register(wire.socket, select.POLLIN | select.POLLOUT)
        connection.wait_for_input(poll, until)
        poll.register(wire.socket, select.POLLIN)
    rows: Answer = []
    failed: Any = None
    while True:
        while wire.is_busy():
            connection.wait_for_input(poll, until)
        result = wire.get_result()
        if result is None:
            break
        if result.status == pq.ExecStatus.FATAL_ERROR:
            failed = result
        elif result.status == pq.ExecStatus.TUPLES_OK:
            fields = range(result.nfields)
            rows += [
                [result.get_value(row, field) for field in fields] for row in range(result.ntuples)
            ]
    if failed is not None:
        raise errors.error_from_result(failed)
    return rows


def to_int(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def to_ids(value: bytes) -> list[bytes]:
    """The elements of a uuid[]: after its head of 20 bytes, 4 bytes of length and 16 of id each."""
    return [value[start + 4 : start + 20] for start in range(20, len(value), 20)]
