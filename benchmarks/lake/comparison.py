"""The same questions asked of a lake's rollups and of PostgreSQL, and what tells them apart.

Counts and moments must be equal, sums and percentiles within a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.report.queries import at_intervals, loads_by, merged, merged_failures
from penstock.spark.pipelines.report.rollup_source import LakeRollups
from penstock.spark.pipelines.rollups.tables import HOUR

SQL = Path(__file__).parent / "sql"
PLAIN = (
    "position",
    "job",
    "queue",
    "task",
    "version",
    "state",
    "reason",
    "run_at",
    "started_at",
    "ended_at",
    "worker",
)
# Names of a row, then what must be equal, then what may differ by a hundredth.
LOAD = (
    ("attempts", "jobs", "failed", "retries", "lapses"),
    ("busy", *(f"{what}_{rank}" for what in ("wait", "run") for rank in ("p50", "p95", "p99"))),
)
QUESTIONS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "tasks": (("queue", "task", "version"), LOAD),
    "hours": (("queue", "at"), LOAD),
    "tags": (("value",), LOAD),
    "failures": (
        ("task", "reason", "signature"),
        (("attempts", "ended", "first_at", "last_at"), ()),
    ),
    "workers": (("worker", "at"), (("attempts",), ("busy",))),
}
CLOSE = 0.01
EVER = 4e9
Rows = list[dict[str, Any]]


def fill(connection: Any, lake: Lake) -> None:
    """A table of PostgreSQL's own with the attempts of a lake."""
    connection.execute(statement("table"))
    with connection.cursor() as cursor, cursor.copy(statement("copy")) as copy:
        attempts = lake.table("attempts")
        for file in attempts.files():
            path = f"{attempts.place.uri}/{file.path}"
            for batch in pa.parquet.ParquetFile(path).iter_batches(200_000):
                copy.write(lines_of(batch))
    connection.execute("vacuum analyze attempts")


def lines_of(batch: Any) -> bytes:
    tags = pa.compute.map_lookup(batch["tags"], "tenant", "first")
    columns = {name: batch[name] for name in PLAIN} | {"tenant": tags, "error": batch["error"]}
    made = pa.BufferOutputStream()
    pa.csv.write_csv(pa.table(columns), made, pa.csv.WriteOptions(include_header=False))
    return made.getvalue().to_pybytes()


def ask_rollups(lake: Lake, name: str) -> Rows:
    rollups = LakeRollups(lake)

    def read(table: str) -> Any:
        return rollups.read(table, 0, EVER)

    questions: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
        "tasks": lambda: loads_by([read("days")], ["queue", "task", "version"]),
        "hours": lambda: loads_by([at_intervals(read("hours"), HOUR)], ["queue", "at"]),
        "tags": lambda: loads_by([read("tag_days")], ["tag", "value"]),
        "failures": lambda: merged_failures(read("failures")),
        "workers": lambda: merged(
            [at_intervals(read("workers"), HOUR)], ["worker", "at"], ("attempts", "busy")
        ),
    }
    return list(questions[name]())


def ask_postgres(connection: Any, name: str) -> Rows:
    cursor = connection.execute(statement(name))
    names = [column.name for column in cursor.description]
    return [flat(dict(zip(names, row, strict=True))) for row in cursor]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Percentiles as columns, moments as seconds."""
    for what in ("wait", "run"):
        for rank, value in zip(("p50", "p95", "p99"), row.pop(f"{what}s", ()), strict=False):
            row[f"{what}_{rank}"] = value
    return {
        name: value.timestamp() if hasattr(value, "timestamp") else value
        for name, value in row.items()
    }


def differences(name: str, here: Rows, there: Rows) -> Iterator[str]:
    """What is not equal, or not close; nothing if the answers are the same."""
    keys, (equal, _) = QUESTIONS[name]
    known = {key_of(row, keys): row for row in here}
    others = {key_of(row, keys): row for row in there}
    if known.keys() != others.keys():
        both = len(known.keys() & others.keys())
        yield f"{len(known)} rows here, {len(others)} there, {both} in both"
        return
    for key, row in known.items():
        for column in equal:
            if not math.isclose(row[column], others[key][column], abs_tol=2e-6, rel_tol=0):
                yield f"{key} {column}: {row[column]} here, {others[key][column]} there"
    for text, apart in distances(name, here, there):
        if apart > CLOSE:
            yield text


def distances(name: str, here: Rows, there: Rows) -> Iterator[tuple[str, float]]:
    """How far each number that may differ is from the other's, as a part of it."""
    keys, (_, close) = QUESTIONS[name]
    others = {key_of(row, keys): row for row in there}
    for row in here:
        other = others.get(key_of(row, keys), {})
        for column in close if other else ():
            a, b = row[column], other[column]
            if a is None or b is None:
                yield f"{key_of(row, keys)} {column}: {a} here, {b} there", float(a is not b)
            else:
                apart = abs(a - b) / max(abs(b), 1e-6)
                yield f"{key_of(row, keys)} {column}: {a} here, {b} there", apart


def key_of(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(float(row[key]) if key == "at" else row[key] for key in keys)


def statement(name: str) -> Any:
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")
