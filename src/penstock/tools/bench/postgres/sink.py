"""A frame through Spark's sink, beside COPY by one process in the same run.

The session is warmed up first: what is measured is a write, not the start of Java.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

from penstock.tools.bench.measure import Say
from penstock.tools.bench.postgres import raw
from penstock.tools.bench.postgres.databases import BenchDatabase

LEAST = 0.8  # of COPY, on any machine
_WARM = 200_000


def through_spark(server: BenchDatabase, rows: int, runs: int, say: Say) -> dict[str, Any]:
    """Rows per second into a store, and into a plain table; medians, and of their ratios."""
    import penstock.spark

    rounds: list[dict[str, float]] = []
    with server.database() as url:
        spark = penstock.spark.session(url=url)
        try:
            _write(_frame(spark, _WARM), url)
            for number in range(1, runs + 1):
                say(f"Spark's sink, round {number} of {runs}")
                rounds.append(_round(server, _frame(spark, rows), rows))
        finally:
            spark.stop()
    return {
        "spark_rows": rows,
        "spark_copy": median(each["copy"] for each in rounds),
        "spark_sink": median(each["sink"] for each in rounds),
        "spark_ratio": median(each["sink"] / each["copy"] for each in rounds),
    }


def _round(server: BenchDatabase, frame: Any, rows: int) -> dict[str, float]:
    with server.database() as url:
        copied = raw.copy(url, rows)
    with server.database() as url:
        _write(frame.limit(1), url)  # the store is made
        began = time.perf_counter()
        _write(frame, url)
        return {"copy": copied, "sink": rows / (time.perf_counter() - began)}


def _frame(spark: Any, rows: int) -> Any:
    """Arguments of about the size that COPY writes."""
    frame = spark.range(0, rows, 1, os.cpu_count() or 2)
    return frame.selectExpr("id as number", "repeat('x', 60) as text")


def _write(frame: Any, url: str) -> None:
    writer = frame.write.format("penstock").option("task", "bench:send").option("url", url)
    writer.mode("append").save()
