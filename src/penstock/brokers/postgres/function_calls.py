"""Calls of our own functions, in PostgreSQL's binary form: the hot path of every verb.

A statement through the driver's cursor costs 40 us of Python before anything is sent, as much as
the server needs to store a job. Here the parameters are bytes that are sent as they are, and the
answer is read field by field; everything that is not hot goes through the cursor.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from penstock.brokers.postgres.connection import Connection, Overdue

UUID, TEXT, FLOAT, INT, BIG, BYTES, FLAG = 2950, 25, 701, 23, 20, 17, 16
UUIDS, FLOATS, INTS, BIGS, BLOBS = 2951, 1022, 1007, 1016, 1001

_BINARY = [1] * 32
_BIG = struct.Struct(">q")
_INT = struct.Struct(">i")
_FLOAT = struct.Struct(">d")

big = _BIG.pack
integer = _INT.pack
number = _FLOAT.pack


def text(value: str | None) -> bytes | None:
    return None if value is None else value.replace("\x00", "\N{SYMBOL FOR NULL}").encode()


def flag(value: bool) -> bytes:
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


def call(connection: Connection, what: Call, values: Sequence[bytes | None]) -> Answer:
    """The rows that it answers, each field as its bytes."""
    wire = connection.pgconn
    try:
        if not connection.prepares:
            wire.send_query_params(
                what.statement, values, what.types, what.formats, pq.Format.BINARY
            )
        else:
            if what.name not in connection.prepared:
                wire.send_prepare(what.name, what.statement, what.types)
                _answer(connection)
                connection.prepared.add(what.name)
            wire.send_query_prepared(what.name, values, what.formats, pq.Format.BINARY)
        return _answer(connection)
    except psycopg.Error:
        if wire.status != pq.ConnStatus.OK:
            wire.finish()
        raise
    except BaseException:
        wire.finish()  # the answer is on the way, and belongs to nobody
        raise


def _answer(connection: Connection) -> Answer:
    wire = connection.pgconn
    until = time.monotonic() + connection.patience
    poll = select.poll()
    poll.register(wire.socket, select.POLLIN)
    while wire.flush():
        poll.register(wire.socket, select.POLLIN | select.POLLOUT)
        _ready(connection, poll, until)
        wire.consume_input()
        poll.register(wire.socket, select.POLLIN)
    rows: Answer = []
    trouble: Any = None
    while True:
        while wire.is_busy():
            _ready(connection, poll, until)
            wire.consume_input()
        result = wire.get_result()
        if result is None:
            break
        if result.status == pq.ExecStatus.FATAL_ERROR:
            trouble = result
        elif result.status == pq.ExecStatus.TUPLES_OK:
            fields = range(result.nfields)
            rows += [
                [result.get_value(row, field) for field in fields] for row in range(result.ntuples)
            ]
    if trouble is not None:
        raise errors.error_from_result(trouble)
    return rows


def _ready(connection: Connection, poll: Any, until: float) -> None:
    left = until - time.monotonic()
    if not poll.poll(max(0.0, left) * 1000) and left <= 0:
        connection.pgconn.finish()
        raise Overdue(f"no answer within {connection.patience:.0f} s")


def to_int(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def to_ids(value: bytes) -> list[bytes]:
    """The elements of an array of ids."""
    return [value[start + 4 : start + 20] for start in range(20, len(value), 20)]
