"""A little of everything on the PySpark that this Python has; prints what came of it, as JSON.

    python version_steps.py FOLDER ANSWERS

Whatever fails is written down by its first lines, so that one run shows all that a version lacks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import penstock.spark
from penstock import App
from penstock.worker import Worker
from tests.spark.connect_steps import command, table

FOLDER, ANSWERS = (Path(each) for each in sys.argv[1:])
app = App()


@app.task(name="shop:double")
def double(number: int) -> int:
    return 2 * number


@app.task(name="shop:daily", spark=True)
def daily(spark: SparkSession, day: date) -> int:
    return spark.range(10).count() + day.day


def sink(spark: Any) -> list[int]:
    """Plain, with keys and with ids; and rows that come a second time."""
    rows = spark.range(10).selectExpr("cast(id as int) number", "concat('k', id % 3) as k")
    counts: list[int] = []
    for options in ({}, {"key_column": "k"}, {"id_column": "k"}, {"id_column": "k"}):
        frame = rows if options.get("id_column") is None else rows.where("number < 3")
        writer = frame.write.format("penstock").option("task", "shop:double")
        writer.options(arguments="number", **options).mode("append").save()
        counts.append(table(spark, "jobs").count())
    return counts


def apply(spark: Any) -> list[Any]:
    rows = spark.range(3).selectExpr("cast(id as int) number", "id")
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            Worker(app, drain=True, threads=2).work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        applied = penstock.spark.apply(rows, double, id="id", name="june")
        return sorted([row.number, row.result] for row in applied.collect())
    finally:
        over.set()
        worker.join()


def backfill(spark: Any) -> list[str]:
    del spark
    filled = daily.backfill("2026-01-01", "2026-01-03")
    Worker(app, drain=True, threads=2).work()
    return sorted(map(str, filled.states().values()))


def tables(spark: Any) -> dict[str, bool]:
    double.enqueue(1)  # it stays
    app.broker.gauge()
    names = ("attempts", "counts", "events", "gauges", "jobs", "results")
    return {name: table(spark, name).count() > 0 for name in names}


def lake(spark: Any) -> list[Any]:
    del spark
    where = ("--lake", str(FOLDER / "lake"), "--json")
    code, run = command("pipeline", "run", *where)
    page = ("--from", "lake", "--page", str(FOLDER / "report.html"))
    report_code, report = command("pipeline", "report", *where, *page)
    return [code, run["taken"]["attempts"], report_code, report["total"]["attempts"]]


def stream_sink(spark: Any) -> int:
    source = FOLDER / "numbers"
    source.mkdir()
    (source / "a.json").write_text('{"number": 1}\n{"number": 2}\n')
    before = table(spark, "jobs").count()
    frame = spark.readStream.schema("number int").json(str(source))
    writer = frame.writeStream.format("penstock").option("task", "shop:double")
    writer = writer.option("checkpointLocation", str(FOLDER / "sink"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return table(spark, "jobs").count() - before


def stream_source(spark: Any) -> int:
    reader = spark.readStream.format("penstock").option("table", "attempts").load()
    writer = reader.writeStream.format("parquet").option("path", str(FOLDER / "stream"))
    writer = writer.option("checkpointLocation", str(FOLDER / "source"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(str(FOLDER / "stream")).count()


def made(step: Any, spark: Any) -> Any:
    try:
        return step(spark)
    except BaseException as error:
        lines = [line for line in str(error).splitlines() if "penstock.errors" in line]
        return f"{type(error).__name__}: {(lines or [str(error)])[0][:1500]}"


if __name__ == "__main__":
    said: dict[str, Any] = {"version": pyspark.__version__}
    session = penstock.spark.session("local[2]", config={"spark.sql.shuffle.partitions": 2})
    steps = (sink, apply, backfill, tables, lake, stream_sink, stream_source)
    for each in steps:
        said[each.__name__] = made(each, session)
    ANSWERS.write_text(json.dumps(said, default=str), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)
