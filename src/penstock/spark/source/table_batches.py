"""Converts batches of a store's rows into batches of a table: Arrow in, Arrow out, by column.

A scan must keep up with the server, and a microsecond of Python per row is as much as the server
itself needs. So only tags, and bodies that hold more than arguments, are decoded row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.broker.gauge import Gauge
from penstock.enqueue.secrets import redact
from penstock.flows.flow import Member
from penstock.spark.source.tables import SCHEMA_VERSION, STORED
from penstock.spark.untyped_arrow import arrow, compute

_PLAIN = '{"args":'
# What a body may hold beside its arguments. A match inside of them only costs time.
_OPTIONS = r'\}\s*,\s*"(headers|timeout|retry|on_success|on_error|on_timeout|secret|flow)"\s*:'
_BODY = ("arguments", "headers", "flow", "node")


class _Body(msgspec.Struct):
    args: msgspec.Raw = msgspec.Raw()
    headers: msgspec.Raw = msgspec.Raw()
    flow: Member | None = None


_read_body = msgspec.json.Decoder(_Body).decode
_read_gauge = msgspec.json.Decoder(Gauge).decode
_read_tags = msgspec.json.Decoder(dict[str, str]).decode
_GAUGE = frozenset(Gauge.__struct_fields__)


class TableBatches:
    """Makes batches of a table with the columns of a schema."""

    def __init__(self, table: str, shard: str, schema: Any) -> None:
        self._table = table
        self._shard = shard
        self._schema = schema

    def convert(self, stored: Any) -> Any:
        """The table's batch for a batch of the store."""
        derived: dict[str, Any] = {}
        names: list[str] = self._schema.names
        if any(name in _BODY for name in names) and "body" in stored.schema.names:
            derived |= self._bodies(stored.column("body"))
        if self._table == "gauges":
            derived |= self._gauges(stored.column("data"))
        arrays = [self._column(stored, derived, field) for field in self._schema]
        return arrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, stored: Any, derived: dict[str, Any], field: Any) -> Any:
        name, rows = field.name, stored.num_rows
        if name == "shard":
            return arrow.repeat(arrow.scalar(self._shard, field.type), rows)
        if name == "schema_version":
            return arrow.repeat(arrow.scalar(SCHEMA_VERSION, field.type), rows)
        if name == "tags":
            return self._tags(stored.column("tags"), field.type)
        if name in derived:
            column = derived[name]
        else:
            column = stored.column(STORED.get(self._table, {}).get(name, name))
        if name == "run_at":
            column = compute.coalesce(column, stored.column("enqueued_at"))
        return column if column.type == field.type else column.cast(field.type)

    def _bodies(self, bodies: Any) -> dict[str, Any]:
        plain = compute.and_(
            compute.and_(
                compute.starts_with(bodies, _PLAIN + "{"), compute.ends_with(bodies, "}}")
            ),
            compute.invert(compute.match_substring_regex(bodies, _OPTIONS)),
        )
        nothing = arrow.nulls(len(bodies), arrow.string())
        if compute.all(plain, skip_nulls=True, min_count=0).as_py():
            # The arguments are the text between `{"args":` and the last bracket.
            cut = compute.binary_slice(bodies.cast(arrow.binary()), len(_PLAIN), -1)
            return {
                "arguments": cut.cast(arrow.string()),
                **dict.fromkeys(("headers", "flow", "node"), nothing),
            }
        rows = [_decode_body(body) for body in bodies.to_pylist()]
        columns = list(zip(*rows, strict=True))
        return {
            name: arrow.array(column, arrow.string())
            for name, column in zip(_BODY, columns, strict=True)
        }

    def _gauges(self, data: Any) -> dict[str, Any]:
        gauges = [_read(_read_gauge, text) or Gauge("") for text in data.to_pylist()]
        return {name: arrow.array([getattr(gauge, name) for gauge in gauges]) for name in _GAUGE}

    def _tags(self, texts: Any, kind: Any) -> Any:
        keys: list[str] = []
        values: list[str] = []
        offsets = [0]
        if texts.null_count == len(texts):
            offsets *= len(texts) + 1
        else:
            known: dict[str | None, dict[str, str]] = {None: {}}
            for text in texts.to_pylist():
                row_tags = known.get(text)
                if row_tags is None:
                    row_tags = known[text] = _read(_read_tags, text) or {}
                keys += row_tags
                values += row_tags.values()
                offsets.append(len(keys))
        tags = arrow.MapArray.from_arrays(
            arrow.array(offsets, arrow.int32()),
            arrow.array(keys, arrow.string()),
            arrow.array(values, arrow.string()),
        )
        return tags if tags.type == kind else tags.cast(kind)


def _decode_body(body: str | None) -> tuple[str | None, str | None, str | None, str | None]:
    """Arguments, headers, flow and node; nulls for a body that cannot be read."""
    read = None if body is None else _read(_read_body, redact(body.encode()))
    if read is None:
        return None, None, None, None
    member = read.flow
    return (
        bytes(read.args).decode() or None,
        bytes(read.headers).decode() or None,
        member and member.id,
        member and member.node,
    )


def _read(decode: Callable[[Any], Any], text: Any) -> Any:
    try:
        return None if text is None else decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None  # damaged: shown as null, so that the other rows can be read
