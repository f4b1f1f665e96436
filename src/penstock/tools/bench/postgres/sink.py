"""Rows per second through Spark's sink, compared with COPY by one process.

Rows with a key or an id have indexes to fill: they are compared with COPY into the same tables.

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

# Rows, what they are compared with, and the least ratio.
KINDS = (("plain", "copy", 0.9), ("keyed", "copy_keyed", 0.7), ("by_id", "copy_keyed", 0.5))
_OPTIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "keyed": {"key_column": "customer"},
    "by_id": {"id_column": "number", "arguments": "number,text"},
}
_WARM = 200_000


def through_spark(server: BenchServer, rows: int, runs: int, say: Say) -> dict[str, Any]:
    """Rows per second into a store and into a plain table: medians, and the median ratio."""
    import penstock.spark

    rounds: list[dict[str, float]] = []
    with server.database() as url:
        spark = penstock.spark.session(url=url)
        try:
            for kind in _OPTIONS:
                _write(_frame(spark, _WARM), url, kind)
            for number in range(1, runs + 1):
                say(f"Spark's sink, round {number} of {runs}")
                rounds.append(_round(server, _frame(spark, rows), rows))
        finally:
            spark.stop()
    figures: dict[str, Any] = {"spark_rows": rows}
    for name in ("copy", "copy_keyed", *_OPTIONS):
        figures[f"spark_{name}"] = median(each[name] for each in rounds)
    for kind, limit, _ in KINDS:
        figures[f"spark_{kind}_ratio"] = median(each[kind] / each[limit] for each in rounds)
    return figures


def _round(server: BenchServer, frame: Any, rows: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    with server.database() as url:
        figures["copy"] = raw.copy(url, rows)
    with server.database() as url:
        _write(frame.limit(1), url, "plain")  # creates the store
        figures["copy_keyed"] = raw.copy_keyed(url, rows)
    for kind in _OPTIONS:
        with server.database() as url:
            _write(frame.limit(1), url, "plain")
            began = time.perf_counter()
            _write(frame, url, kind)
            figures[kind] = rows / (time.perf_counter() - began)
    return figures


def _frame(spark: Any, rows: int) -> Any:
    """Arguments of about the size of the rows of COPY."""
    frame = spark.range(0, rows, 1, os.cpu_count() or 2)
    customer = "concat('customer-', id % 1000) as customer"
    return frame.selectExpr("id as number", "repeat('x', 60) as text", customer)


def _write(frame: Any, url: str, kind: str) -> None:
    writer = frame if kind == "keyed" else frame.drop("customer")
    writer = writer.write.format("penstock").option("task", "bench:send").option("url", url)
    writer.options(**_OPTIONS[kind]).mode("append").save()
