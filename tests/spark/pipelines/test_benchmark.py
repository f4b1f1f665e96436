"""The benchmark of reports: its history is one that the pipeline could have read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.lake import synthetic

from penstock.spark.tables import columns_of

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


def test_it_says_what_it_does():
    ran = subprocess.run(
        [sys.executable, str(RUN), "--help"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "--rows" in ran.stdout
