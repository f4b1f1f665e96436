"""`penstock bench --spark`: the sink beside COPY, at its smallest."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.soak
def test_bench_measures_the_sink_beside_copy():
    """Issue 5: the measure of the acceptance is one command; here only that it works."""
    command = [sys.executable, "-m", "penstock", "bench", "--broker", "postgres", "--json"]
    bench = subprocess.run(
        [*command, "--jobs", "1000", "--runs", "1", "--spark", "1000"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert bench.returncode == 0, bench.stderr
    figures = json.loads(bench.stdout)
    assert figures["spark_rows"] == 1000
    least = {words: ratio["least"] for words, ratio in figures["ratios"].items()}
    assert least["Spark's sink, plain rows / COPY of as many rows"] == 0.9
    assert least["Spark's sink, rows with a key / COPY into copies of job and sent"] == 0.7
    assert min(figures[f"spark_{kind}"] for kind in ("plain", "keyed", "by_id")) > 0
