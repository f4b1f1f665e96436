"""Datasets on real Spark: inputs read, rows written by executors, checked, and made by jobs."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import App, Expect, Interval
from penstock.broker.filter import Filter
from penstock.spark.datasets.frames import CheckFailed, read_versions
from penstock.spark.datasets.run import fill
from penstock.spark.datasets.table import DatasetTable
from penstock.task.dataset_plan import Made
from penstock.task.interval import Timeline
from penstock.worker import Worker

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def test_a_month_of_days_is_made_by_jobs_checked_and_read_back(
    spark: Any, store_url: str, tmp_path: Path
):
    app = App(store_url)

    def probes(spark: SparkSession, interval: Interval) -> DataFrame:
        values = f"select id, timestamp '{interval.start.isoformat()}' as at from range(0, 3)"
        return spark.sql(values)

    @app.dataset(
        name="rides",
        partition="day",
        zone="Europe/Paris",
        start="2026-03-28",
        table=tmp_path / "rides",
        inputs=[probes],
        check=[
            Expect("id < 2", at_most=5, on_failure="warn", name="small"),
            lambda found: found.where("at is null"),
        ],
        spark={"spark.sql.shuffle.partitions": 1},
    )
    def rides(spark: SparkSession, interval: Interval, found: DataFrame) -> DataFrame:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
        return found

    @app.dataset(name="busy", partition="week", table=tmp_path / "busy", inputs=[rides])
    def busy(spark: SparkSession, monday: date, found: DataFrame) -> DataFrame:
        return found.selectExpr("count(*) as rides", "min(at) as first", f"date'{monday}' as week")

    assert isinstance(busy.partitions, Timeline)
    until = busy.partitions.parse("2026-W13").end.timestamp()
    filled = fill(app, ["busy"], until=until)
    Worker(app, drain=True, threads=2).work()

    assert (filled.enqueued, filled.waiting) == ({"rides": 2}, 1)
    snapshot = DatasetTable(busy.place).find()
    assert snapshot is not None
    frame = read_versions(spark, snapshot, ["2026-W13"])
    [row] = frame.collect()
    assert (row["rides"], row["week"]) == (6, date(2026, 3, 23))
    days = DatasetTable(rides.place).find()
    assert days is not None
    made = days.made("2026-03-29", run=days.versions()["2026-03-29"].run)
    assert isinstance(made, Made)
    assert [(check.name, check.bad, check.passed) for check in made.checks] == [
        ("small", 1, True),
        ("<lambda>", 0, True),
    ]
    app.close()


def test_what_does_not_pass_an_expectation_is_not_committed(
    spark: Any, store_url: str, tmp_path: Path
):
    app = App(store_url)

    @app.dataset(
        name="strict",
        partition=["north"],
        table=tmp_path / "strict",
        check=Expect("id > 0 or null", name="from one on"),
    )
    def strict(spark: SparkSession, partition: str) -> DataFrame:
        return spark.range(2)

    fill(app, ["strict"])
    Worker(app, drain=True, threads=1).work()

    [job] = app.broker.find(Filter()).jobs
    assert f"{CheckFailed.__name__}: strict north is not committed: 1 rows do not pass" in (
        job.error or ""
    )
    assert not list(tmp_path.rglob("*.parquet"))
    app.close()
