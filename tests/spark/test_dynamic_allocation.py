"""On a cluster that gives executors when there is work and takes them away when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import App
from tests.spark.cluster import Cluster
from tests.spark.drivers import Driver, open_gate
from tests.spark.frames import numbers_in
from tests.spark.test_sink_kills import IN_BOTH, at_gate, kill_executor
from tests.stories.conftest import eventually

TASKS = Path(__file__).with_name("fleet_tasks.py")
SOON = 240.0
DYNAMIC: dict[str, Any] = {
    "spark.dynamicAllocation.enabled": True,
    "spark.dynamicAllocation.shuffleTracking.enabled": True,
    "spark.dynamicAllocation.minExecutors": 0,
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.cores": 1,
    "spark.executor.memory": "512m",
    "spark.cores.max": 2,
}


@pytest.fixture
def idle_cluster(cluster: Cluster) -> Cluster:
    eventually(lambda: not cluster.executors(), SOON, "executors of other tests are gone")
    return cluster


# REQUIREMENTS S1
@pytest.mark.timeout(900)
def test_executors_come_and_go_between_writes_and_one_is_lost_in_the_middle(
    idle_cluster: Cluster, postgres_store_url: str, tmp_path: Path
):
    url = postgres_store_url
    given: dict[str, Any] = {"folder": str(tmp_path), "gate": "gate"}
    with Driver(idle_cluster.url, url, tmp_path / "driver", **DYNAMIC) as driver:
        driver.run("write", **given, hold=[])
        eventually(lambda: not idle_cluster.executors(), SOON, "idle executors are taken away")

        ended = driver.start("write", **given, hold=IN_BOTH)
        kill_executor(at_gate(tmp_path, url, 2))
        open_gate(tmp_path, "gate")
        ended()

    assert numbers_in(url) == dict.fromkeys(range(400), 2)


# REQUIREMENTS S10
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_fleet_gets_its_executors_when_it_starts(idle_cluster: Cluster, postgres_store_url: str):
    app = App(postgres_store_url)

    @app.declare("nap")
    def nap(number: int, seconds: float = 0.02) -> int: ...

    nap.enqueue_many([(number, 0.01) for number in range(200)])
    command = [sys.executable, "-m", "penstock", "spark-worker", f"{TASKS}:app", "--drain"]
    for name, value in DYNAMIC.items():
        command += ["--config", f"{name}={str(value).lower()}"]

    done = subprocess.run(
        [*command, "--master", idle_cluster.url, "--slots", "2"],
        env={
            **os.environ,
            "PENSTOCK_URL": postgres_store_url,
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "200 jobs settled by 2 slots" in done.stdout, done.stderr
    app.close()
