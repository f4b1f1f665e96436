"""Build: the datasets that the lake keeps, made anew for the days that changed and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipelines.datasets.build import DATASETS, build
from penstock.spark.pipelines.lake.compact import compact
from penstock.spark.pipelines.lake.export import add_frame
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.write_parquet import spark_path
from tests.spark.pipelines.history import a_frame, a_gauge, an_attempt, at, attempts


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def read_dataset(spark: Any, lake: Lake, name: str) -> Any:
    """A dataset as `build` left it; None if it has no row."""
    files = [spark_path(path) for path in lake.files(name)]
    reader = spark.read.option("basePath", spark_path(lake.folder / name))
    return reader.parquet(*files) if files else None


def jobs_by_day(spark: Any, lake: Lake) -> dict[str, int]:
    made = read_dataset(spark, lake, "minutes")
    assert made is not None
    return {str(row.day): row["sum(jobs)"] for row in made.groupBy("day").sum("jobs").collect()}


def test_only_days_that_changed_are_made_anew(shared_spark, lake):
    first, second = an_attempt(1), an_attempt(2, ended_at=at(86400), tags={"tenant": "a"})
    bad = an_attempt(3, state="failed", reason="error", error="Boom", ended_at=at(86400))
    with lake.writing() as writing:
        add_frame(attempts(shared_spark, first, second), writing, "attempts")
        add_frame(a_frame(shared_spark, "gauges", a_gauge(1, ready=3)), writing, "gauges")
        assert build(shared_spark, writing, nobody) == {
            "minutes": 2,
            "tag_minutes": 2,
            "failures": 2,
            "depth": 1,
        }
        assert build(shared_spark, writing, nobody) == dict.fromkeys(DATASETS, 0)
        add_frame(attempts(shared_spark, bad), writing, "attempts")
        assert build(shared_spark, writing, nobody)["minutes"] == 1
        compact(shared_spark, writing, nobody)
        assert build(shared_spark, writing, nobody) == dict.fromkeys(DATASETS, 0)

    assert jobs_by_day(shared_spark, lake) == {"2026-11-15": 1, "2026-11-16": 2}
    failed = read_dataset(shared_spark, lake, "failures")
    assert [row.signature for row in failed.collect()] == ["Boom"]
    assert read_dataset(shared_spark, lake, "depth").first().ready == 3


def test_an_empty_lake_has_empty_datasets(shared_spark, lake):
    with lake.writing() as writing:
        assert build(shared_spark, writing, nobody) == dict.fromkeys(DATASETS, 0)

    assert read_dataset(shared_spark, lake, "minutes") is None
