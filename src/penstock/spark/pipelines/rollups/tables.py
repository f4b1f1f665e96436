"""The tables of rollups: their columns. `at` is the begin of the minute, hour or day of a row.

They hold no keys, arguments or results. Values of tags, names of workers and errors without
numbers and quoted words are in them, and leave with the rows that they are made from.
"""

from __future__ import annotations

from typing import Any

from penstock.spark.untyped_arrow import arrow, compute

MINUTE, HOUR, DAY = 60, 3600, 86400
GRAINS = {"minutes": MINUTE, "hours": HOUR, "days": DAY}
BACKFILL = "backfill"  # the tag under which partitions of a task are counted, its value the task
_AT = arrow.timestamp("us", "UTC")
_KINDS: dict[str, Any] = {
    "version": arrow.int32(),
    "bucket": arrow.int16(),
    **dict.fromkeys(("at", "first_at", "last_at"), _AT),
    **dict.fromkeys(("busy", "run", "gap", "oldest"), arrow.float64()),
    **dict.fromkeys(
        ("queue", "task", "measure", "state", "reason", "tag", "value", "signature", "example"),
        arrow.string(),
    ),
    **dict.fromkeys(("worker", "kind", "schedule"), arrow.string()),
}
STATES = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")
# measure `ended`: attempts by state and reason, with the seconds that they ran. `wait` and `run`:
# attempts by bucket of a histogram.
_LOAD = ("measure", "state", "reason", "bucket", "attempts", "busy")
_COLUMNS = {
    **dict.fromkeys(GRAINS, ("queue", "task", "version", "at", *_LOAD)),
    "tag_days": ("queue", "tag", "value", "at", *_LOAD),
    "failures": (
        *("queue", "task", "reason", "signature", "at", "attempts", "ended"),
        *("first_at", "last_at", "example"),
    ),
    "workers": ("worker", "at", "attempts", "busy"),
    # `bucket` of the time from enqueued to the end; `bad`: flows with a step that failed.
    "flows": ("kind", "at", "bucket", "flows", "bad"),
    "flow_steps": ("kind", "task", "at", "paths", "run", "gap", "again"),
    # `bucket` of the time from a slot to the start of its job, and how many jobs; else null.
    "schedules": ("schedule", "at", "enqueued", "skipped", "bucket", "jobs"),
    "depth": ("queue", "at", *STATES, "oldest"),
}
SCHEMAS: dict[str, Any] = {
    name: arrow.schema([(column, _KINDS.get(column, arrow.int64())) for column in columns])
    for name, columns in _COLUMNS.items()
}
OF_ATTEMPTS = ("minutes", "hours", "days", "tag_days", "failures", "workers")
OF_DAYS = ("flows", "flow_steps", "schedules", "depth")


def conformed(name: str, rows: Any) -> Any:
    """An Arrow table with the columns of this rollup; those that it lacks are null."""
    schema = SCHEMAS[name]
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else arrow.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return arrow.table(columns, schema=schema)


def from_rows(name: str, rows: list[dict[str, Any]]) -> Any:
    return arrow.Table.from_pylist(rows, SCHEMAS[name])


def floored(microseconds: Any, every: int) -> Any:
    """Times in microseconds, as the begin of their interval of so many seconds."""
    size = every * 1_000_000
    return compute.multiply(compute.divide(microseconds, size), size)
