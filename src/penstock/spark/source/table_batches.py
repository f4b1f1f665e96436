"""Rows of a store as rows of a table: Arrow in, Arrow out, and no look at single rows if possible.

A scan must keep up with the server, and a microsecond of Python a row is as much as the server
itself needs. So what every row has is done in whole columns; only bodies that say more than their
arguments, and tags, are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from penstock.broker.gauge import Gauge
from penstock.enqueue.secrets import redact
from penstock.flows.flow import Member
from penstock.spark.source.tables import SCHEMA_VERSION, STORED

_PLAIN = '{"args":'
# Anything that a body says beside its arguments; inside of them, it only costs a closer look.
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


class Shape:
    """Makes batches of a table, of just the columns that a schema names."""

    def __init__(self, table: str, shard: str, schema: Any) -> None:
        self._table = table
        self._shard = shard
        self._schema = schema
        self._pa: Any = import_module("pyarrow")
        self._compute: Any = import_module("pyarrow.compute")

    def batch(self, stored: Any) -> Any:
        """A batch of the store as one of the table."""
        made: dict[str, Any] = {}
        names: list[str] = self._schema.names
        if any(name in _BODY for name in names) and "body" in stored.schema.names:
            made |= self._bodies(stored.column("body"))
        if self._table == "gauges":
            made |= self._gauges(stored.column("data"))
        arrays = [self._column(stored, made, field) for field in self._schema]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, stored: Any, made: dict[str, Any], field: Any) -> Any:
        pa, name, rows = self._pa, field.name, stored.num_rows
        if name == "shard":
            return pa.repeat(pa.scalar(self._shard, field.type), rows)
        if name == "schema_version":
            return pa.repeat(pa.scalar(SCHEMA_VERSION, field.type), rows)
        if name == "tags":
            return self._tags(stored.column("tags"), field.type)
        if name in made:
            return made[name] if made[name].type == field.type else made[name].cast(field.type)
        column = stored.column(STORED.get(self._table, {}).get(name, name))
        if name == "run_at":
            column = self._compute.coalesce(column, stored.column("enqueued_at"))
        return column if column.type == field.type else column.cast(field.type)

    def _bodies(self, bodies: Any) -> dict[str, Any]:
        pa, compute = self._pa, self._compute
        plain = compute.and_(
            compute.and_(
                compute.starts_with(bodies, _PLAIN + "{"), compute.ends_with(bodies, "}}")
            ),
            compute.invert(compute.match_substring_regex(bodies, _OPTIONS)),
        )
        nothing = pa.nulls(len(bodies), pa.string())
        if compute.all(plain, skip_nulls=True, min_count=0).as_py():
            # The arguments are all but `{"args":` and the last bracket.
            cut = compute.binary_slice(bodies.cast(pa.binary()), len(_PLAIN), -1)
            return {
                "arguments": cut.cast(pa.string()),
                **dict.fromkeys(("headers", "flow", "node"), nothing),
            }
        rows = [_said(body) for body in bodies.to_pylist()]
        columns = list(zip(*rows, strict=True))
        return {
            name: pa.array(column, pa.string()) for name, column in zip(_BODY, columns, strict=True)
        }

    def _gauges(self, data: Any) -> dict[str, Any]:
        gauges = [_read(_read_gauge, text) or Gauge("") for text in data.to_pylist()]
        return {name: self._pa.array([getattr(gauge, name) for gauge in gauges]) for name in _GAUGE}

    def _tags(self, texts: Any, wanted: Any) -> Any:
        pa = self._pa
        keys: list[str] = []
        values: list[str] = []
        offsets = [0]
        if texts.null_count == len(texts):
            offsets *= len(texts) + 1
        else:
            known: dict[str | None, dict[str, str]] = {None: {}}
            for text in texts.to_pylist():
                tags = known.get(text)
                if tags is None:
                    tags = known[text] = _read(_read_tags, text) or {}
                keys += tags
                values += tags.values()
                offsets.append(len(keys))
        made = pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()),
            pa.array(keys, pa.string()),
            pa.array(values, pa.string()),
        )
        return made if made.type == wanted else made.cast(wanted)


def _said(body: str | None) -> tuple[str | None, str | None, str | None, str | None]:
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
        return None  # damaged: the others are still worth reading
