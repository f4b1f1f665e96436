"""Executors that run something else than the driver are refused, in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Refused
from penstock.app.version import RELEASE
from penstock.spark.ship_code import executor_versions
from tests.spark.cluster import Cluster
from tests.spark.drivers import SOURCE

pytestmark = pytest.mark.timeout(900)
SESSION = """
import sys
import penstock.spark
from penstock import Refused

master, url, path = sys.argv[1:]
config = {"spark.executorEnv.PYTHONPATH": path, "spark.executor.memory": "512m"}
try:
    penstock.spark.session(master, url=url, config={**config, "spark.cores.max": 2})
except Refused as error:
    print(error)
"""


def test_another_penstock_on_the_executors_of_a_cluster(
    cluster: Cluster, sqlite_url: str, tmp_path: Path
):
    """Issue 5: a version skew between driver and executors is refused in one sentence."""
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "__init__.py").touch()
    metadata = tmp_path / "penstock_queue-0.0.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: penstock-queue\nVersion: 0.0.9\n")

    answer = subprocess.run(
        [sys.executable, "-c", SESSION, cluster.url, sqlite_url, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    [sentence] = answer.stdout.splitlines()
    assert sentence.startswith(f"the driver runs Penstock {RELEASE} and the executor on")
    assert "has 0.0.9: install the same" in sentence


def test_another_python_or_none_on_the_executors(
    shared_spark: Any, monkeypatch: pytest.MonkeyPatch
):
    """Spark says it in a hundred lines."""
    context = shared_spark.sparkContext
    here = ".".join(map(str, sys.version_info[:2]))

    with monkeypatch.context() as other:
        other.setattr(context, "pythonVer", "3.99")
        sentence = f"the driver runs Python 3.99 and the executors {here}: set PYSPARK_PYTHON"
        with pytest.raises(Refused, match=sentence):
            executor_versions(shared_spark)
    monkeypatch.setattr(context, "pythonExec", "/no/such/python")
    with pytest.raises(Refused, match="the executors cannot run /no/such/python: set PYSPARK_PY"):
        executor_versions(shared_spark)
