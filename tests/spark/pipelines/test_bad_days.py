"""Bad days of a lake: whatever is lost, killed or gone, it equals the history, row for row."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.errors import StreamingQueryException

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.job import succeeded
from penstock.spark.pipelines.lake.compact import compact
from penstock.spark.pipelines.lake.export import add_frame, export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.manifest import read_manifest
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, enqueue_and_claim, settle
from tests.spark.cluster import Cluster
from tests.spark.pipelines.exported import exported, nobody, of_lake, of_store, some_history
from tests.stories.conftest import eventually


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def store(store_url: str) -> Iterator[Broker]:
    broker = open_broker(store_url)
    yield broker
    broker.close()


def streamed(spark: Any, lake: Lake, checkpoint: Path) -> None:
    """As an export does it, with a checkpoint that is kept."""
    with lake.writing() as writing:

        def each(batch: Any, number: int) -> None:
            add_frame(batch, writing, "attempts")

        frame = spark.readStream.format("penstock").option("table", "attempts").load()
        sink = frame.writeStream.foreachBatch(each).trigger(availableNow=True)
        for left in reversed(range(5)):
            try:
                sink.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
                break
            except StreamingQueryException as error:
                # Spark waits ten seconds for Python to start, and this machine may be busy.
                if not left or "failed to connect back" not in str(error):
                    raise


def test_an_older_checkpoint_a_deleted_one_and_a_replay_after_compacting(
    spark, store, lake, tmp_path
):
    """Issue 5: the mark decides, and not what a stream believes."""
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    some_history(store, Clock(store.clock.now()), 10)
    streamed(spark, lake, checkpoint)
    shutil.copytree(checkpoint, older)
    some_history(store, Clock(store.clock.now()), 10)
    streamed(spark, lake, checkpoint)
    with lake.writing() as writing:
        assert compact(spark, writing, nobody) > 0
    whole = of_store(store)["attempts"]
    assert of_lake(lake)["attempts"] == whole

    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)
    streamed(spark, lake, checkpoint)
    assert of_lake(lake)["attempts"] == whole

    shutil.rmtree(checkpoint)
    streamed(spark, lake, checkpoint)
    assert of_lake(lake)["attempts"] == whole


def test_the_widest_row_alone_in_its_day(spark, store, lake):
    """Issue 5: a wide row, and a day with one row."""
    arguments = b'{"args":{"x":"%s"}}' % (b"a" * 200_000)
    result = b'"%s"' % (b"r" * 1_000_000)
    job = enqueue_and_claim(store, Clock(store.clock.now()), body=arguments)
    settle(store, job, begun(succeeded(result), store.clock.now()))

    exported(spark, lake)

    assert of_lake(lake)["attempts"] == of_store(store)["attempts"]
    [file] = lake.files("attempts")
    [row] = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    assert row["arguments"] == '{"x":"%s"}' % ("a" * 200_000)
    assert row["result"] == result.decode()


def workers_of(java: int) -> list[int]:
    """The Python workers that run Spark's tasks below a Java: children of its daemon."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (place / "cmdline").read_bytes().split(b"\0"):
                stat = (place / "stat").read_text().rpartition(")")[2]
                parents[int(place.name)] = int(stat.split()[1])
    daemons = {pid for pid, parent in parents.items() if parent == java}
    return [pid for pid, parent in parents.items() if parent in daemons]


@pytest.mark.parametrize(
    "store_url",
    ["postgres", pytest.param("sqlite", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_python_workers_killed_in_mid_export(spark, store, lake):
    """Issue 5: Spark has others do their tasks again, or stops in a sentence; nothing is lost."""
    some_history(store, Clock(store.clock.now()), 60)
    java = spark.sparkContext._gateway.proc.pid
    killed: list[int] = []

    def told(table: str, rows: int) -> None:
        if not killed:
            killed.extend(workers_of(java))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with lake.writing() as writing, suppress(PenstockError):
        export(spark, writing, told, rows_at_once=20)
    assert killed

    exported(spark, lake)

    assert of_lake(lake) == of_store(store)


@pytest.mark.parametrize(
    "store_url",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_a_folder_that_is_gone_in_mid_run_is_one_sentence(spark, store, lake):
    """Issue 5: nothing is half published, and another run begins a lake."""
    some_history(store, Clock(store.clock.now()), 50)

    def gone(table: str, rows: int) -> None:
        shutil.rmtree(lake.folder)

    with (
        lake.writing() as writing,
        pytest.raises(PenstockError, match="export of attempts failed: there is no lake in"),
    ):
        export(spark, writing, gone, rows_at_once=20)

    assert read_manifest(lake.folder) is None
    exported(spark, lake)
    assert of_lake(lake) == of_store(store)


ON_A_CLUSTER = """
import sys
import penstock.spark
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.manifest import read_manifest

master, url, folder = sys.argv[1:]
config = {"spark.executor.memory": "512m"}
spark = penstock.spark.session(master, url=url, config=config)


def told(table, rows):
    print(rows, flush=True)
    sys.stdin.readline()


with Lake(folder).writing() as writing:
    export(spark, writing, told, rows_at_once=40)
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_executor_killed_in_mid_export(spark, store, store_url, lake, cluster: Cluster):
    """Issue 5: on a real cluster; the rest goes on, and what was taken is there once."""
    some_history(store, Clock(store.clock.now()), 150)
    script = lake.folder.parent / "cluster.py"
    script.write_text(ON_A_CLUSTER)
    with (lake.folder.parent / "cluster.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(script), cluster.url, store_url, str(lake.folder)],
            env={**os.environ, "PENSTOCK_URL": store_url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert driver.stdout is not None
        assert int(driver.stdout.readline()) > 0
        [victim, *_] = eventually(cluster.executors, 240)
        os.kill(victim, signal.SIGKILL)
        driver.communicate(timeout=400)
    finally:
        driver.kill()
        driver.wait()
    assert of_lake(lake)["attempts"]

    exported(spark, lake)
    with lake.writing() as writing:
        compact(spark, writing, nobody)
    exported(spark, lake)

    assert of_lake(lake) == of_store(store)
