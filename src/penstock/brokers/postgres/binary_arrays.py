"""Arrays in PostgreSQL's binary format, encoded by hand: 0.1 us an element.

psycopg needs ten times that, and every job that ends is an element of seven arrays.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import cast

from psycopg import adapters as default_adapters
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

_LITTLE = sys.byteorder == "little"
_SIZES = [struct.pack(">i", size) for size in range(4096)]
_NULL = b"\xff\xff\xff\xff"
_UUID, _FLOAT, _BYTES, _INT, _BIG = 2950, 701, 17, 23, 20


def uuid_array(values: Sequence[bytes]) -> bytes:
    if not values:
        return _empty(_UUID)
    return _head(_UUID, len(values)) + _SIZES[16] + _SIZES[16].join(values)


def float8_array(values: Iterable[float]) -> bytes:
    return _numbers(_FLOAT, array("d", values))


def int4_array(values: Iterable[int]) -> bytes:
    return _numbers(_INT, array("i", values))


def int8_array(values: Iterable[int]) -> bytes:
    return _numbers(_BIG, array("q", values))


def float8_array_or_null(values: Sequence[float | None]) -> bytes | None:
    """None for an array of nothing but nulls: `unnest` of several arrays fills up with nulls."""
    nulls = values.count(None)
    if nulls == len(values):
        return None
    if not nulls:
        return float8_array(cast("Sequence[float]", values))
    parts = [_NULL if value is None else _SIZES[8] + struct.pack(">d", value) for value in values]
    return _head(_FLOAT, len(values), nulls=1) + b"".join(parts)


def bytea_array(values: Sequence[bytes | None]) -> bytes | None:
    """As float8_array_or_null."""
    nulls = values.count(None)
    if nulls == len(values):
        return None
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            size = len(value)
            parts.append(_SIZES[size] if size < 4096 else struct.pack(">i", size))
            parts.append(value)
    return _head(_BYTES, len(values), nulls=int(nulls > 0)) + b"".join(parts)


def _head(element: int, count: int, nulls: int = 0) -> bytes:
    return struct.pack(">iiIii", 1, nulls, element, count, 1)


def _empty(element: int) -> bytes:
    return struct.pack(">iiI", 0, 0, element)


def _numbers(element: int, values: array[int] | array[float]) -> bytes:
    count, width = len(values), values.itemsize
    if not count:
        return _empty(element)
    if _LITTLE:
        values.byteswap()
    raw = values.tobytes()
    # Each number after its length. Slices copy the n-th byte of all numbers at once, in C.
    spread = bytearray((_SIZES[width] + bytes(width)) * count)
    step = 4 + width
    for byte in range(width):
        spread[4 + byte :: step] = raw[byte::width]
    return _head(element, count) + bytes(spread)


class _Untyped(Dumper):
    """Bytes without a type: the server takes them for what the statement needs, uuid or bytea."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: bytes) -> bytes:
        return obj


class _Text(Dumper):
    """Text; NUL, which PostgreSQL cannot store, becomes U+2400 (symbol for null)."""

    format = Format.BINARY
    oid = 25

    def dump(self, obj: str) -> bytes:
        return obj.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace")


class _Id(Loader):
    """A uuid as its 16 bytes, as the rest of this package handles ids."""

    format = Format.BINARY

    def load(self, data: bytes | bytearray | memoryview) -> bytes:
        return bytes(data)


def psycopg_adapters() -> AdaptersMap:
    """How psycopg converts values on connections of this broker."""
    made = AdaptersMap(default_adapters)
    made.register_dumper(bytes, _Untyped)
    made.register_dumper(str, _Text)
    made.register_loader("uuid", _Id)
    return made
