"""Reports over a synthetic history: Spark on the lake's files, and the same questions in SQL.

    python benchmarks/lake/run.py --rows 20000000

Makes a lake of that many attempts in a temporary folder, loads the same rows into a PostgreSQL
that is thrown away, asks both the same five questions, compares every answer (counts equal,
percentiles within 1 %) and prints the times of both. Nothing is asserted of the times.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import synthetic

import penstock.spark
from penstock.spark.pipelines.clean import HOUR, clean
from penstock.spark.pipelines.export import take
from penstock.spark.pipelines.failures import failures
from penstock.spark.pipelines.lake import Lake
from penstock.spark.pipelines.load import by_tag, load
from penstock.spark.pipelines.raw import read_raw
from penstock.spark.pipelines.worker_use import worker_use
from penstock.testing.postgres import Server

SQL = Path(__file__).parent / "sql"
SETTINGS = {
    "shared_buffers": "1GB",
    "work_mem": "256MB",
    "max_wal_size": "8GB",
    "max_parallel_workers_per_gather": 2,
}
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--runs", type=int, default=3, help="of each question; medians are shown")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        figures = measure(Path(folder), asked.rows, asked.runs)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    show(figures)
    sys.exit(0 if all(each["equal"] for each in figures["questions"].values()) else 1)


def measure(folder: Path, rows: int, runs: int) -> dict[str, Any]:
    spark = penstock.spark.session(
        "local[*]",
        url=f"sqlite:///{folder}/none.db",
        config={"spark.driver.memory": "4g", "spark.local.dir": str(folder)},
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    say(f"making {rows:,} attempts")
    began = time.monotonic()
    with Lake(folder / "lake").writing() as writing:
        take(synthetic.attempts(spark, rows), writing, "attempts")
        lake = writing.lake
    made = time.monotonic() - began
    size = sum(file.bytes for file in lake.manifest().table("attempts").files)
    with (
        Server(SETTINGS) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        say("loading them into PostgreSQL")
        began = time.monotonic()
        fill(connection, lake)
        loaded = time.monotonic() - began
        # A question at a time, both sides one after the other: they share the machine's moods.
        questions = {
            name: compare(name, spark_question(spark, lake, name), connection, runs)
            for name in QUESTIONS
        }
    spark.stop()
    return {
        "rows": rows,
        "runs": runs,
        "lake_bytes": size,
        "lake_seconds": made,
        "load_seconds": loaded,
        "questions": questions,
    }


def fill(connection: Any, lake: Lake) -> None:
    connection.execute(statement("table"))
    with connection.cursor() as cursor, cursor.copy(statement("copy")) as copy:
        for path in lake.files("attempts"):
            for batch in pa.parquet.ParquetFile(path).iter_batches(200_000):
                copy.write(lines_of(batch))
    connection.execute("vacuum analyze attempts")


def lines_of(batch: Any) -> bytes:
    tags = pa.compute.map_lookup(batch["tags"], "tenant", "first")
    columns = {name: batch[name] for name in PLAIN} | {"tenant": tags, "error": batch["error"]}
    made = pa.BufferOutputStream()
    pa.csv.write_csv(pa.table(columns), made, pa.csv.WriteOptions(include_header=False))
    return made.getvalue().to_pybytes()


def spark_question(spark: Any, lake: Lake, name: str) -> Callable[[], list[dict[str, Any]]]:
    def asked() -> list[dict[str, Any]]:
        attempts = clean(read_raw(spark, lake, "attempts"))
        frame = {
            "tasks": lambda: load(attempts, "queue", "task", "version"),
            "hours": lambda: load(attempts, "queue", every=HOUR),
            "tags": lambda: load(by_tag(attempts), "tag", "value"),
            "failures": lambda: failures(attempts),
            "workers": lambda: worker_use(attempts, HOUR),
        }[name]()
        for moment in {"at", "first_at", "last_at"} & set(frame.columns):
            frame = frame.withColumn(moment, frame[moment].cast("double"))
        return [row.asDict() for row in frame.collect()]

    return asked


def sql_question(connection: Any, name: str) -> list[dict[str, Any]]:
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


def compare(name: str, ask: Callable[[], Any], connection: Any, runs: int) -> dict[str, Any]:
    ours, theirs = list[float](), list[float]()
    here: Any = []
    there: Any = []
    for _ in range(runs):
        began = time.monotonic()
        here = ask()
        ours.append(time.monotonic() - began)
        began = time.monotonic()
        there = sql_question(connection, name)
        theirs.append(time.monotonic() - began)
        say(f"{name}: Spark {ours[-1]:.1f} s, PostgreSQL {theirs[-1]:.1f} s")
    apart = list(differences(name, here, there))
    for text in apart[:5]:
        say(f"{name}: {text}")
    worst = max((each for _, each in distances(name, here, there)), default=0.0)
    return {
        "rows": len(here),
        "equal": not apart,
        "furthest": worst,
        "spark": median(ours),
        "postgres": median(theirs),
    }


def differences(name: str, here: Any, there: Any) -> Iterator[str]:
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


def distances(name: str, here: Any, there: Any) -> Iterator[tuple[str, float]]:
    keys, (_, close) = QUESTIONS[name]
    others = {key_of(row, keys): row for row in there}
    for row in here:
        other = others.get(key_of(row, keys))
        for column in close if other else ():
            a, b = row[column], other[column]
            if a is None or b is None:
                yield f"{key_of(row, keys)} {column}: {a} here, {b} there", float(a is not b)
            else:
                apart = abs(a - b) / max(abs(b), 1e-6)
                yield f"{key_of(row, keys)} {column}: {a} here, {b} there", apart


def key_of(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(float(row[key]) if key == "at" else row[key] for key in keys)


def show(figures: dict[str, Any]) -> None:
    print(f"\n{figures['rows']:,} attempts, {figures['lake_bytes'] / 1e6:,.0f} MB in the lake")
    print(
        f"{'question':<10}{'rows':>8}{'Spark':>10}{'PostgreSQL':>12}{'times':>8}  equal  furthest"
    )
    sums = [0.0, 0.0]
    for name, each in figures["questions"].items():
        sums[0] += each["spark"]
        sums[1] += each["postgres"]
        print(
            f"{name:<10}{each['rows']:>8,}{each['spark']:>8.1f} s{each['postgres']:>10.1f} s"
            f"{each['postgres'] / each['spark']:>8.1f}  {'yes' if each['equal'] else 'NO':<5}"
            f"{100 * each['furthest']:>8.2f} %"
        )
    print(f"{'all':<18}{sums[0]:>8.1f} s{sums[1]:>10.1f} s{sums[1] / sums[0]:>8.1f}")


def statement(name: str) -> Any:
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
