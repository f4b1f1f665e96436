"""Reports over a synthetic history: Spark on the lake's files, and the same questions in SQL.

    python benchmarks/lake/run.py --rows 20000000

Makes a lake of that many attempts in a temporary folder, loads the same rows into a PostgreSQL
that is thrown away, asks both the same five questions, compares every answer (counts equal,
percentiles within 1 %) and prints the times of both. Nothing is asserted of the times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import synthetic
from comparison import QUESTIONS, ask_postgres, ask_spark, differences, distances, fill

import penstock.spark
from penstock.spark.pipelines.lake.export import add_frame
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.session_settings import pipeline_settings
from penstock.testing.postgres import Server

SETTINGS = {
    "shared_buffers": "1GB",
    "work_mem": "256MB",
    "max_wal_size": "8GB",
    "max_parallel_workers_per_gather": 2,
}


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
    say(f"making {rows:,} attempts")
    began = time.monotonic()
    with Lake(folder / "lake").writing() as writing:
        add_frame(synthetic.attempts(spark, rows), writing, "attempts")
        lake = writing.lake
    made = time.monotonic() - began
    size = sum(file.bytes for file in lake.manifest().table("attempts").files)
    with (
        pipeline_settings(spark),
        Server(SETTINGS) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        say("loading them into PostgreSQL")
        began = time.monotonic()
        fill(connection, lake)
        loaded = time.monotonic() - began
        # A question at a time, both sides one after the other: they share the machine's moods.
        questions = {name: compare(name, spark, lake, connection, runs) for name in QUESTIONS}
    spark.stop()
    return {
        "rows": rows,
        "runs": runs,
        "lake_bytes": size,
        "lake_seconds": made,
        "load_seconds": loaded,
        "questions": questions,
    }


def compare(name: str, spark: Any, lake: Lake, connection: Any, runs: int) -> dict[str, Any]:
    ours, theirs = list[float](), list[float]()
    here: Any = []
    there: Any = []
    for _ in range(runs):
        began = time.monotonic()
        here = ask_spark(spark, lake, name)
        ours.append(time.monotonic() - began)
        began = time.monotonic()
        there = ask_postgres(connection, name)
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


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
