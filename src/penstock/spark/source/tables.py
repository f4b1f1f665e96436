"""The tables of the data source: their columns and types.

A contract: columns are only ever added, just before `schema_version`, which then rises by one.
docs/reference/spark-tables.md shows the same columns, and a test compares.
"""

from __future__ import annotations

from typing import Any, cast

from penstock.broker.slice import Table
from penstock.errors import Refused
from penstock.spark.untyped_arrow import arrow

SCHEMA_VERSION = 2

TABLES: dict[str, str] = {
    "attempts": (
        "position string, shard string, job string, attempt int, queue string, task string,"
        " version int, priority int, state string, reason string, key string, failures int,"
        " lapses int, enqueued_at timestamp, run_at timestamp, started_at timestamp,"
        " ended_at timestamp, worker string, tags map<string,string>, error string,"
        " arguments string, headers string, flow string, node string, result string,"
        " app string, schema_version int"
    ),
    "events": (
        "position string, shard string, kind string, at timestamp, job string, queue string,"
        " task string, version int, attempt int, state string, reason string, key string,"
        " tags map<string,string>, data string, app string, schema_version int"
    ),
    "gauges": (
        "position string, shard string, at timestamp, queue string, ready bigint,"
        " scheduled bigint, waiting bigint, paused bigint, limited bigint, running bigint,"
        " failed bigint, oldest double, schema_version int"
    ),
    "jobs": (
        "shard string, id string, queue string, task string, version int, priority int,"
        " state string, reason string, key string, attempt int, failures int, lapses int,"
        " enqueued_at timestamp, run_at timestamp, claimed_at timestamp, ended_at timestamp,"
        " worker string, tags map<string,string>, error string, arguments string, flow string,"
        " app string, schema_version int"
    ),
    "results": (
        "shard string, job string, queue string, task string, state string, ended_at timestamp,"
        " result string, error string, flow string, node string, app string, schema_version int"
    ),
}
# Columns that have another name in the rows that a store gives.
STORED = {
    "attempts": {"ended_at": "at"},
    "results": {"job": "id"},
}
# The time column of the history tables.
TIMES = {"attempts": "ended_at", "events": "at", "gauges": "at"}

_KINDS: dict[str, Any] = {
    "string": arrow.string(),
    "int": arrow.int32(),
    "bigint": arrow.int64(),
    "double": arrow.float64(),
    "date": arrow.date32(),
    "timestamp": arrow.timestamp("us", "UTC"),
    "map<string,string>": arrow.map_(arrow.string(), arrow.string()),
}


def arrow_schema(ddl: str) -> Any:
    """The Arrow schema of some columns; Spark's own differs by version, and needs a session."""
    return arrow.schema([(name, _KINDS[kind]) for name, kind in map(str.split, ddl.split(", "))])


def columns_of(table: str) -> dict[str, str]:
    """The columns of a table and their types, in their order."""
    columns: dict[str, str] = {}
    for column in TABLES[table].split(", "):
        name, kind = column.split(" ")
        columns[name] = kind
    return columns


def table_named(name: str, others: tuple[str, ...] = ()) -> Table:
    """The table of this name; refused with the list of tables if there is none."""
    if name not in TABLES:
        known = ", ".join(sorted((*TABLES, *others)))
        raise Refused(f'option("table", {name!r}): no such table; there are {known}')
    return cast("Table", name)
