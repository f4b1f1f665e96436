"""Rows per second through Spark's sink, compared with COPY by one process.

The session is warmed up first, so that a write is measured and not the start of Java.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

from penstock.tools.bench.measure import Say
from penstock.tools.bench.postgres import raw
from penstock.tools.bench.postgres.databases import BenchServer

LEAST = 0.8  # of COPY, on any machine
_WARM = 200_000


def through_spark(server: BenchServer, rows: int, runs: int, say: Say) -> dict[str, Any]:
    """Rows per second into a store and into a plain table: medians, and the median ratio."""
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
        "spark_copy": median(figures["copy"] for figures in rounds),
        "spark_sink": median(figures["sink"] for figures in rounds),
        "spark_ratio": median(figures["sink"] / figures["copy"] for figures in rounds),
    }


def _round(server: BenchServer, frame: Any, rows: int) -> dict[str, float]:
    with server.database() as url:
        copied = raw.copy(url, rows)
    with server.database() as url:
        _write(frame.limit(1), url)  # creates the store
        began = time.perf_counter()
        _write(frame, url)
        return {"copy": copied, "sink": rows / (time.perf_counter() - began)}


def _frame(spark: Any, rows: int) -> Any:
    """Arguments of about the size of the rows of COPY."""
    frame = spark.range(0, rows, 1, os.cpu_count() or 2)
    return frame.selectExpr("id as number", "repeat('x', 60) as text")


def _write(frame: Any, url: str) -> None:
    writer = frame.write.format("penstock").option("task", "bench:send").option("url", url)
    writer.mode("append").save()
