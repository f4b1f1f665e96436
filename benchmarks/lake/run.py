"""Reports over a synthetic history: rollups of a lake, and the same questions in SQL.

    python benchmarks/lake/run.py --rows 20000000

Makes a lake of that many attempts in a temporary folder, and its rollups; adds a day; loads the
same rows into a PostgreSQL that is thrown away, asks both the same five questions, compares every
answer (counts equal, percentiles within 1 %) and prints the times of both, of a whole report, and
of forgetting a tenant's rows. Nothing is asserted of the times. --no-sql leaves PostgreSQL out.
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
import upkeep
from comparison import QUESTIONS, ask_postgres, ask_rollups, differences, distances, fill

import penstock.spark
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
    parser.add_argument("--no-sql", action="store_true", help="leave PostgreSQL out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        figures = measure(Path(folder), asked.rows, 0 if asked.no_sql else asked.runs)
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
    lake = Lake(folder / "lake")
    with pipeline_settings(spark):
        figures = upkeep.measure(spark, lake, rows, say)
    spark.stop()
    questions: dict[str, Any] = {}
    if runs:
        with (
            Server(SETTINGS) as server,
            psycopg.connect(server.url(), autocommit=True) as connection,
        ):
            say("loading them into PostgreSQL")
            fill(connection, lake)
            # A question at a time, both sides one after the other: they share the machine's moods.
            questions = {name: compare(name, lake, connection, runs) for name in QUESTIONS}
    say(json.dumps(figures))
    figures["forget"] = upkeep.forget(lake, say)
    return {**figures, "runs": runs, "questions": questions}


def compare(name: str, lake: Lake, connection: Any, runs: int) -> dict[str, Any]:
    ours, theirs = list[float](), list[float]()
    here: Any = []
    there: Any = []
    for _ in range(runs):
        began = time.monotonic()
        here = ask_rollups(lake, name)
        ours.append(time.monotonic() - began)
        began = time.monotonic()
        there = ask_postgres(connection, name)
        theirs.append(time.monotonic() - began)
        say(f"{name}: rollups {ours[-1]:.2f} s, PostgreSQL {theirs[-1]:.1f} s")
    apart = list(differences(name, here, there))
    for text in apart[:5]:
        say(f"{name}: {text}")
    worst = max((each for _, each in distances(name, here, there)), default=0.0)
    return {
        "rows": len(here),
        "equal": not apart,
        "furthest": worst,
        "rollups": median(ours),
        "postgres": median(theirs),
    }


def show(figures: dict[str, Any]) -> None:
    rows = figures["rows"]
    print(f"\n{rows:,} attempts: {figures['lake_bytes'] / 1e6:,.0f} MB in the lake,", end=" ")
    print(f"{figures['rollup_bytes'] / 1e6:,.0f} MB of rollups in {figures['rollup_rows']:,} rows")
    for name in ("rollups", "day", "report", "forget"):
        print(f"{name:<10}{figures[name]:>8.2f} s")
    print(f"rollups: {1e6 * figures['rollups'] / rows:.2f} s per million rows")
    print(f"most memory of the driver: {figures['driver_mb']:,.0f} MB", end=", ")
    print(f"with the report {figures['report_mb']:,.0f} MB")
    if not figures["questions"]:
        return
    print(f"{'question':<10}{'rows':>8}{'rollups':>10}{'PostgreSQL':>12}{'times':>8}  equal")
    sums = [0.0, 0.0]
    for name, each in figures["questions"].items():
        sums[0] += each["rollups"]
        sums[1] += each["postgres"]
        print(
            f"{name:<10}{each['rows']:>8,}{each['rollups']:>8.2f} s{each['postgres']:>10.1f} s"
            f"{each['postgres'] / each['rollups']:>8.1f}  {'yes' if each['equal'] else 'NO':<5}"
            f"{100 * each['furthest']:>8.2f} % apart at most"
        )
    print(f"{'all':<18}{sums[0]:>8.2f} s{sums[1]:>10.1f} s{sums[1] / sums[0]:>8.1f}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
