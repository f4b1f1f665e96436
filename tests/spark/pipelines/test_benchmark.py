"""The benchmark of reports: a history that the pipeline could have read, and answers that agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from benchmarks.lake import comparison, synthetic, upkeep

from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.rollups.build import build, build_with
from penstock.spark.pipelines.session_settings import pipeline_settings
from penstock.spark.source.tables import columns_of
from tests.spark.pipelines.history import add_frame

RUN = Path(__file__).parents[3] / "benchmarks" / "lake" / "run.py"


@pytest.mark.parametrize("table", ["attempts", "events", "gauges"])
def test_the_synthetic_history_has_the_columns_of_the_tables(shared_spark, table):
    made = {
        "attempts": lambda: synthetic.attempts(shared_spark, 50, days=2),
        "events": lambda: synthetic.events(shared_spark, 50, days=2),
        "gauges": lambda: synthetic.gauges(shared_spark, days=2, every=3600),
    }[table]()

    assert {field.name: field.dataType.simpleString() for field in made.schema} == columns_of(table)
    assert made.count() >= 48


# REQUIREMENTS S22
def test_answers_are_those_of_the_same_questions_in_sql(shared_spark, postgres_url, tmp_path):
    """Counts and moments equal, sums and percentiles within a hundredth."""
    lake = Lake(tmp_path / "lake")
    add_frame(synthetic.attempts(shared_spark, 1000, days=1, parts=1), lake, "attempts")
    build(lake, build_with(shared_spark), lambda _names, _days: None)

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        comparison.fill(connection, lake)
        for name in comparison.QUESTIONS:
            here = comparison.ask_rollups(lake, name)
            there = comparison.ask_postgres(connection, name)
            assert here
            assert list(comparison.differences(name, here, there)) == []


def measured(spark, lake, rows):
    with pipeline_settings(spark):
        figures = upkeep.measure(spark, lake, rows, print)
    print(figures)
    return figures


def test_what_keeps_a_lake_leaves_the_right_counts(shared_spark, tmp_path):
    """Rollups built, a day added, a report, a tenant forgotten."""
    lake = Lake(tmp_path / "lake")

    figures = measured(shared_spark, lake, 20_000)
    upkeep.forget(lake, print)

    assert 20_000 / upkeep.DAYS < figures["day_rows"] < 20_000 / 10


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_ten_times_the_rows_cost_ten_times_as_much_and_no_more_memory(shared_spark, tmp_path):
    """Issue 17: flat from 10 to 100 million."""
    few = measured(shared_spark, Lake(tmp_path / "few"), 10_000_000)
    many = measured(shared_spark, Lake(tmp_path / "many"), 100_000_000)
    upkeep.forget(Lake(tmp_path / "many"), print)

    for step in ("rollups", "day"):
        assert many[step] < 10 * few[step] * 1.5
    assert many["report"] < 10 * few["report"]
    assert many["driver_mb"] < few["driver_mb"] * 1.25


def test_it_says_what_it_does():
    ran = subprocess.run(
        [sys.executable, str(RUN), "--help"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "--rows" in ran.stdout
