"""Bad days of a lake: whatever is lost, killed or gone, it equals the history, row for row."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.job import succeeded
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.upkeep import compact
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, enqueue_and_claim, settle
from tests.spark.pipelines.exported import exported, nobody, of_lake, of_store, some_history
from tests.spark.pipelines.history import add_frame


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def store(store_url: str) -> Iterator[Broker]:
    broker = open_broker(store_url)
    yield broker
    broker.close()


def streamed(spark: Any, lake: Lake, checkpoint: Path) -> None:
    """The history as a stream whose checkpoint is kept."""

    def each(batch: Any, number: int) -> None:
        add_frame(batch, lake, "attempts")

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


@pytest.mark.parametrize(
    "store_url",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_an_older_checkpoint_a_deleted_one_and_a_replay_after_compacting(
    spark, store, lake, tmp_path
):
    """Issue 5: the mark decides, and not what a stream believes: batches may come again."""
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    some_history(store, Clock(store.clock.now()), 10)
    streamed(spark, lake, checkpoint)
    shutil.copytree(checkpoint, older)
    some_history(store, Clock(store.clock.now()), 10)
    streamed(spark, lake, checkpoint)
    assert compact(lake, nobody).fewer > 0
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
    [row] = lake.table("attempts").rows()
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

    with suppress(PenstockError):
        export(spark, lake, told, rows_at_once=20)
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

    with pytest.raises(PenstockError, match=r"export of \w+ failed: there is no lake in"):
        export(spark, lake, gone, rows_at_once=20)

    assert not lake.exists()
    exported(spark, lake)
    assert of_lake(lake) == of_store(store)
