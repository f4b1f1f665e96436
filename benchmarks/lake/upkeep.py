"""What a lake of any size costs: rollups built, a day added, a report, rows forgotten.

The attempts are written a million at a time, as an export would leave them.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

try:  # as a script, and as part of the tests
    import synthetic
except ImportError:
    from benchmarks.lake import synthetic

from penstock.spark.pipelines.lake.data_files import DataFile, write_rows
from penstock.spark.pipelines.lake.forget_rows import RowChoice, forget_rows
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables
from penstock.spark.pipelines.report.page import page
from penstock.spark.pipelines.report.queries import query_report
from penstock.spark.pipelines.report.rollup_source import LakeRollups
from penstock.spark.pipelines.rollups.build import build, build_with
from penstock.spark.pipelines.rollups.tables import OF_ATTEMPTS, OF_DAYS

AT_ONCE = 1_000_000
DAYS = 28


def measure(spark: Any, lake: Lake, rows: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Make a lake of so many attempts, all but its last day at first; seconds of each step."""
    create_raw_tables(lake)
    files = made(spark, lake, rows)
    # Jobs of a flow that began before midnight are on the day after the last.
    last = datetime.fromtimestamp(synthetic.START + (DAYS - 1) * 86400, UTC).date().isoformat()
    lake.table("attempts").commit([file for file in files if file.day < last])
    newest = [file for file in files if file.day >= last]
    seconds: dict[str, Any] = {"rows": rows}
    for name, added in (("rollups", []), ("day", newest)):
        if added:
            lake.table("attempts").commit(added)
        began = time.monotonic()
        days = build(lake, build_with(spark), lambda _names, _days: None)
        seconds[name] = time.monotonic() - began
        say(f"{name}: {days['minutes']} days in {seconds[name]:.1f} s")
    seconds["driver_mb"] = most_memory()
    seconds["day_rows"] = sum(file.rows for file in newest)
    began = time.monotonic()
    answers = query_report(LakeRollups(lake))
    page(answers)
    seconds["report"] = time.monotonic() - began
    say(f"report: {seconds['report']:.2f} s")
    assert answers.total["attempts"] == rows
    rollups = [file for name in (*OF_ATTEMPTS, *OF_DAYS) for file in lake.table(name).files()]
    return {
        **seconds,
        "lake_bytes": sum(file.bytes for file in files),
        "rollup_bytes": sum(file.bytes for file in rollups),
        "rollup_rows": sum(file.rows for file in rollups),
        "report_mb": most_memory(),
    }


def most_memory() -> float:
    """The most memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget(lake: Lake, say: Callable[[str], None]) -> float:
    """Seconds to forget the rows of a tenant; what the rollups then say is what the lake holds."""
    began = time.monotonic()
    done = forget_rows(lake, RowChoice(tag=("tenant", "t39")), dry_run=False)
    took = time.monotonic() - began
    say(f"forget-rows: {done.rows['attempts']:,} rows in {took:.1f} s")
    left = sum(lake.table("attempts").rows_by_day().values())
    assert query_report(LakeRollups(lake)).total["attempts"] == left
    return took


def made(spark: Any, lake: Lake, rows: int) -> list[DataFile]:
    """Files with so many attempts, that no commit names yet."""
    place = lake.table("attempts").place
    files: list[DataFile] = []
    for first in range(0, rows, AT_ONCE):
        numbers = (first, min(first + AT_ONCE, rows))
        frame = synthetic.attempts(spark, rows, DAYS, 2, numbers)
        files += write_rows(frame.toArrow().to_batches(), place, "ended_at")
    return files
