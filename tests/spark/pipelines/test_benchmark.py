"""The benchmark of reports: a history that the pipeline could have read, and answers that agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from benchmarks.lake import comparison, synthetic

from penstock.spark.pipelines.lake.export import add_frame
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.session_settings import pipeline_settings
from penstock.spark.source.tables import columns_of

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


def test_answers_are_those_of_the_same_questions_in_sql(shared_spark, postgres_url, tmp_path):
    """Counts and moments equal, sums and percentiles within a hundredth."""
    with Lake(tmp_path / "lake").writing() as writing:
        add_frame(synthetic.attempts(shared_spark, 1000, days=1, parts=1), writing, "attempts")
        lake = writing.lake

    with (
        pipeline_settings(shared_spark),
        psycopg.connect(postgres_url, autocommit=True) as connection,
    ):
        comparison.fill(connection, lake)
        for name in comparison.QUESTIONS:
            here = comparison.ask_spark(shared_spark, lake, name)
            there = comparison.ask_postgres(connection, name)
            assert here
            assert list(comparison.differences(name, here, there)) == []


def test_it_says_what_it_does():
    ran = subprocess.run(
        [sys.executable, str(RUN), "--help"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "--rows" in ran.stdout
