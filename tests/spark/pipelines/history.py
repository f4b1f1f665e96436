"""Histories for tests of the pipeline: rows of the raw tables, each with a default for the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.brokers.positions import position_text
from penstock.spark.pipelines.lake.data_files import write_rows
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake, Snapshot
from penstock.spark.pipelines.lake.marks import mark_name, number_of_mark
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables
from penstock.spark.source.tables import TABLES, TIMES, arrow_schema, columns_of

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon of 2026-11-15."""
    return NOON + timedelta(seconds=seconds)


def an_attempt(position: int, **fields: Any) -> dict[str, Any]:
    """An attempt that waited a second from noon on, ran for two, and succeeded."""
    return {
        "position": position_text(position),
        "shard": "a",
        "job": f"job-{position}",
        "attempt": 1,
        "queue": "mail",
        "task": "mail:send",
        "version": 1,
        "priority": 0,
        "state": "succeeded",
        "failures": 0,
        "lapses": 0,
        "enqueued_at": at(0),
        "run_at": at(0),
        "started_at": at(1),
        "ended_at": at(3),
        "worker": "worker-1",
        "tags": {},
        "schema_version": 1,
        **fields,
    }


def an_event(position: int, kind: str = "event", **fields: Any) -> dict[str, Any]:
    return {
        "position": position_text(position),
        "shard": "a",
        "kind": kind,
        "at": at(0),
        "tags": {},
        "schema_version": 1,
        **fields,
    }


def a_gauge(position: int, **fields: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed"), 0
    )
    return {
        "position": position_text(position),
        "shard": "a",
        "at": at(0),
        "queue": "mail",
        **numbers,
        "schema_version": 1,
        **fields,
    }


def a_frame(spark: Any, table: str, *rows: dict[str, Any]) -> Any:
    """The rows as a frame of this table."""
    names = spark.createDataFrame([], TABLES[table]).columns
    unknown = {name for row in rows for name in row} - set(names)
    assert not unknown, unknown
    return spark.createDataFrame(
        [tuple(row.get(name) for name in names) for row in rows], TABLES[table]
    )


def put_rows(lake: Lake, table: str, *rows: dict[str, Any], schema: Any = None) -> int:
    """Add rows to a lake as an export does, without a session; those behind the mark only."""
    create_raw_tables(lake)
    snapshot = lake.table(table)
    marks = {row["shard"]: snapshot.mark(mark_name(row["shard"])) for row in rows}
    fresh = [row for row in rows if int(row["position"]) > marks[row["shard"]]]
    for row in fresh:
        marks[row["shard"]] = max(marks[row["shard"]], int(row["position"]))
    columns = schema or arrow_schema(TABLES[table])
    batch = pa.RecordBatch.from_pylist(
        [
            {**row, **({"tags": list(row["tags"].items())} if "tags" in row else {})}
            for row in fresh
        ],
        columns,
    )
    files = write_rows([batch], snapshot.place, TIMES[table])
    if files:
        snapshot.commit(files, marks={mark_name(shard): mark for shard, mark in marks.items()})
    return len(fresh)


def attempts(spark: Any, *rows: dict[str, Any]) -> Any:
    return a_frame(spark, "attempts", *rows)


def add_frame(frame: Any, lake: Lake, table: str) -> int:
    """Add the rows of a frame that are behind the table's mark, as an export does; how many."""
    create_raw_tables(lake)
    rows = frame.select(*columns_of(table)).toArrow()
    while True:
        snapshot = lake.table(table)
        new = rows.filter(_behind_marks(rows, snapshot))
        files = write_rows(new.to_batches(), snapshot.place, TIMES[table])
        marks: dict[str, int] = {}
        for file in files:
            name, last = mark_name(file.highs["shard"]), number_of_mark(file.highs["position"])
            marks[name] = max(marks.get(name, 0), last)
        try:
            if files:
                snapshot.commit(files, marks=marks)
        except CommitConflict:
            continue
        return sum(file.rows for file in files)


def _behind_marks(rows: Any, snapshot: Snapshot) -> Any:
    marks = {
        shard: position_text(snapshot.mark(mark_name(shard)))
        for shard in pc.unique(rows.column("shard")).to_pylist()
    }
    last = pa.array([marks[shard] for shard in rows.column("shard").to_pylist()], pa.string())
    return pc.greater(rows.column("position"), last)
