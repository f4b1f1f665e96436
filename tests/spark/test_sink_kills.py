"""Sink and export on a real cluster, with something killed (-9) in the middle.

One driver makes most of it, and has speculation on, which makes bad days worse.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.clock import Clock
from tests.postgres_store import PostgresStore
from tests.spark.cluster import Cluster
from tests.spark.drivers import (
    SOON,
    Driver,
    arrived,
    executor_of,
    open_gate,
    siblings_of,
)
from tests.spark.frames import jobs_in, numbers_in
from tests.spark.pipelines.exported import of_lake, of_store, some_history
from tests.spark.test_sink_stream import put
from tests.stories.conftest import eventually

pytestmark = pytest.mark.timeout(1500)
DAY = 86400.0
ONCE = dict.fromkeys(range(400), 1)
IN_BOTH = [190, 390]  # the second hundred of each of two partitions: the first one is staged


@pytest.fixture(scope="module")
def driver(
    cluster: Cluster, migrated_postgres: PostgresStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """The driver that lives."""
    folder = tmp_path_factory.mktemp("driver")
    with Driver(
        cluster.url,
        migrated_postgres.url,
        folder,
        **{
            "spark.speculation": True,
            "spark.speculation.interval": "50ms",
            "spark.speculation.quantile": 0.5,
            "spark.speculation.efficiency.enabled": False,
        },
    ) as driver:
        yield driver


def staged_in(url: str) -> set[tuple[str, str]]:
    """The write and the part of whatever is staged."""
    with psycopg.connect(url) as connection:
        return set(connection.execute("select distinct write, part from penstock.staged"))


def at_gate(folder: Path, url: str, number: int, gate: str = "gate") -> list[int]:
    """So many tasks wait, and something is staged."""

    def look() -> list[int]:
        there = arrived(folder, gate)
        return there if len(there) >= number and staged_in(url) else []

    return eventually(look, SOON, "the tasks are in mid-write")


def sweep(url: str) -> None:
    """The upkeep of any worker, a day from now."""
    broker = PostgresBroker(url, clock=Clock(time.time() + 25 * 3600))
    broker.prune(time.time() - 14 * DAY)
    broker.close()


def swept(url: str) -> bool:
    """Whether nothing is left once a day has passed: an attempt that lost may have gone on."""
    sweep(url)
    with psycopg.connect(url) as connection:
        lane = "select count(*) from penstock.parcel where lane = penstock.lane_staged()"
        [parcels] = connection.execute(lane).fetchall()
    return not staged_in(url) and parcels == (0,)


def kill_executor(workers: list[int]) -> None:
    os.kill(executor_of(workers[0]), signal.SIGKILL)


def kill_python(workers: list[int]) -> None:
    for pid in siblings_of(workers[0]):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_executor, kill_python])
def test_killed_in_mid_write(
    driver: Driver, postgres_store_url: str, tmp_path: Path, kill: Callable[[list[int]], None]
):
    """Issue 5: an executor, or the Python workers of one: each row is one job, and no rest."""
    given: dict[str, Any] = {"folder": str(tmp_path), "gate": "gate", "hold": IN_BOTH}
    ended = driver.start("write", **given)

    kill(at_gate(tmp_path, postgres_store_url, 2))
    open_gate(tmp_path, "gate")
    ended()

    assert numbers_in(postgres_store_url) == ONCE
    eventually(lambda: swept(postgres_store_url), SOON)


# REQUIREMENTS S1
def test_a_slow_task_is_run_a_second_time_to_be_sure(
    driver: Driver, postgres_store_url: str, tmp_path: Path
):
    """Issue 5: real speculation; the first attempt has staged some of its rows, and then waits."""
    driver.run("write", folder=str(tmp_path), gate="gate", hold=[190])

    assert len(arrived(tmp_path, "gate")) == 1
    assert numbers_in(postgres_store_url) == ONCE
    open_gate(tmp_path, "gate")
    eventually(lambda: swept(postgres_store_url), SOON)


def test_a_shuffle_by_chance_whose_half_is_lost_before_it_is_read(
    driver: Driver, postgres_store_url: str, tmp_path: Path
):
    """Issue 5: rows are dealt out anew, and to others. Spark may give up: then there is nothing."""
    given: dict[str, Any] = {"folder": str(tmp_path), "gate": "gate", "hold": list(range(400))}
    ended = driver.start("shuffled", **given)
    eventually(lambda: len(arrived(tmp_path, "gate")) == 2, SOON)

    kill_executor(arrived(tmp_path, "gate"))
    open_gate(tmp_path, "gate")
    try:
        ended()
    except RuntimeError as error:
        assert "indeterminate" in str(error)  # noqa: PT017  it need not fail
        assert jobs_in(postgres_store_url) == []
        driver.run("shuffled", **given)

    assert numbers_in(postgres_store_url) == ONCE


def test_an_executor_killed_in_the_middle_of_an_epoch(
    driver: Driver, postgres_store_url: str, tmp_path: Path
):
    """Issue 5: the same from a stream."""
    ended = driver.start("stream", gate="gate", hold=IN_BOTH, **_stream(tmp_path))

    kill_executor(at_gate(tmp_path, postgres_store_url, 1))
    open_gate(tmp_path, "gate")
    ended()

    assert numbers_in(postgres_store_url) == ONCE


def test_an_executor_killed_in_mid_export(
    cluster: Cluster, driver: Driver, postgres_store_url: str, tmp_path: Path
):
    """Issue 5: the rest goes on, and what was taken is there once."""
    store = PostgresBroker(postgres_store_url)
    some_history(store, Clock(store.clock.now()), 150)
    lake = Lake(tmp_path / "lake")
    ended = driver.start("export", lake=str(lake.folder), folder=str(tmp_path), gate="gate")
    eventually(lambda: arrived(tmp_path, "gate"), SOON)

    os.kill(eventually(cluster.executors, SOON)[0], signal.SIGKILL)
    open_gate(tmp_path, "gate")
    try:
        ended()
    except RuntimeError as error:
        assert "run it again, and it continues" in str(error)  # noqa: PT017  it need not fail
        driver.run("export", lake=str(lake.folder), folder=str(tmp_path), gate="gate")

    assert of_lake(lake) == of_store(store)
    store.close()


# REQUIREMENTS S4
@pytest.mark.soak
def test_a_driver_killed_in_mid_write_and_in_the_middle_of_an_epoch(
    cluster: Cluster, driver: Driver, postgres_store_url: str, tmp_path: Path
):
    """Issue 5: nothing is published, and whoever writes the same again clears away what is staged.

    Again, in another number of partitions; and the stream from its checkpoint, in another process.
    """
    url, named = postgres_store_url, {"write": "import-9"}
    stream = _stream(tmp_path)
    with Driver(cluster.url, url, tmp_path / "doomed") as doomed:
        batch = {"folder": str(tmp_path), "gate": "batch", "hold": [190], "partitions": 1}
        doomed.start("write", **batch, options=named)
        at_gate(tmp_path, url, 1, "batch")  # before: the stream has work for all that is left
        doomed.start("stream", **stream, gate="stream", hold=IN_BOTH)
        at_gate(tmp_path, url, 1, "stream")
        eventually(lambda: len({write for write, _ in staged_in(url)}) == 2, SOON)
    left = staged_in(url)

    assert jobs_in(url) == []
    driver.run("coalesced", options=named)
    assert numbers_in(url) == ONCE
    driver.run("stream", **stream, gate="none", hold=[])
    assert numbers_in(url) == dict.fromkeys(range(400), 2)
    assert not staged_in(url) & left
    driver.run("stream", **stream, gate="none", hold=[])
    driver.run("coalesced", options=named)
    assert numbers_in(url) == dict.fromkeys(range(400), 2)


def _stream(folder: Path) -> dict[str, Any]:
    put(folder / "in", "1.json", *range(200))
    put(folder / "in", "2.json", *range(200, 400))
    places = {"source": folder / "in", "checkpoint": folder / "checkpoint", "folder": folder}
    return {name: str(path) for name, path in places.items()}
