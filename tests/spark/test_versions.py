"""The same on every PySpark from 4.0 on: that in `make test`, all in `make test-spark-versions`.

Each has an environment of its own in `.venv`, which make makes: its PySpark comes first in it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from penstock.spark.session import OLDEST
from tests.quick_java import INTERPRETED, QUICK

HOUSE = Path(__file__).parents[2]
STEPS = Path(__file__).with_name("version_steps.py")
FLOOR = ".".join(map(str, OLDEST))
FIRST_STREAM = "4.2"
OURS = ("PENSTOCK_", "PYSPARK_", "SPARK_")


def python_of(minor: str) -> Path:
    python = HOUSE / ".venv" / f"spark-{minor}" / "bin" / "python"
    assert python.exists(), f"no PySpark {minor} here: make .venv/spark-{minor}/.ready"
    return python


# REQUIREMENTS S27
@pytest.mark.timeout(1500)  # all of Spark, begun anew
@pytest.mark.parametrize(
    "minor",
    [FLOOR, *(pytest.param(each, marks=pytest.mark.spark_versions) for each in ("4.1", "4.2"))],
)
def test_a_little_of_everything(minor: str, tmp_path: Path):
    """S29: session, sink, source, apply, Spark tasks, backfill, lake, report, streams."""
    answers = tmp_path / "answers.json"
    variables = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    variables |= {
        "PENSTOCK_URL": f"sqlite:///{tmp_path}/jobs.db",
        "PYTHONPATH": str(HOUSE),
        "SPARK_SUBMIT_OPTS": " ".join((*QUICK, *INTERPRETED)),
    }

    done = subprocess.run(
        [python_of(minor), STEPS, tmp_path, answers],
        env=variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1480,
        check=False,
    )

    assert answers.exists(), done.stdout[-3000:]
    said = json.loads(answers.read_text())
    assert said.pop("version").startswith(f"{minor}.")
    stream = said.pop("stream_source")
    assert said == {
        "sink": [10, 20, 23, 23],
        "apply": [[0, 0], [1, 2], [2, 4]],
        "backfill": ["succeeded"] * 3,
        "tables": dict.fromkeys(
            ("attempts", "counts", "events", "gauges", "jobs", "results"), True
        ),
        "lake": [0, 29, 0, 29],
        "stream_sink": 2,
    }
    if minor >= FIRST_STREAM:
        assert stream == 29
    else:
        assert f"needs pyspark {FIRST_STREAM} or newer, and this is {minor}." in stream
