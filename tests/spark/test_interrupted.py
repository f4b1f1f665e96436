"""A test that runs out of time in the middle of a call to Java takes no other test with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
NESTED = """
import pytest


def test_before(shared_spark):
    assert shared_spark.range(3).count() == 3


@pytest.mark.timeout(2)
def test_that_runs_out_of_time(shared_spark):
    shared_spark._jvm.java.lang.Thread.sleep(10_000)


@pytest.mark.parametrize("rows", [5, 7])
def test_after(shared_spark, rows):
    assert shared_spark.range(rows).count() == rows
"""


@pytest.mark.timeout(900)  # Spark is started twice
def test_a_session_that_was_interrupted_is_made_anew(tmp_path):
    (tmp_path / "test_nested.py").write_text(NESTED)
    (tmp_path / "pytest.ini").touch()
    plugins = ("no:randomly", "no:cacheprovider", "conftest", "tests.spark.conftest")

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *(word for name in plugins for word in ("-p", name))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 failed, 3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "FAILED test_nested.py::test_that_runs_out_of_time" in ran.stdout
