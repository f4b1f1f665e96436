"""The sink on bad days: whatever dies or runs twice, each row is one job, or none is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from penstock.spark.sink import BatchSink
from tests.spark.frames import arguments_in, jobs_in, numbers_in, write

ONCE = dict.fromkeys(range(400), 1)


@pytest.fixture
def small(spark: Any) -> Iterator[Any]:
    """The session with batches so small that a task has many."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    yield spark
    spark.conf.set(name, before)


def _failing_twice(batches: Iterator[Any]) -> Iterator[Any]:
    """Hands on some batches, then fails, in the first two attempts of partition 0."""
    context = TaskContext.get()
    for place, batch in enumerate(batches):
        if place == 5 and context.partitionId() == 0 and context.attemptNumber() < 2:
            raise OSError("the disk is gone")
        yield batch


def _killing(batches: Iterator[Any]) -> Iterator[Any]:
    """Kills the other Python workers once, in the middle: those that write are among them."""
    context = TaskContext.get()
    for place, batch in enumerate(batches):
        if place == 6 and context.partitionId() == 0 and context.attemptNumber() == 0:
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent == os.getppid() and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
        yield batch


def _numbers(spark: Any, partitions: int = 2) -> Any:
    return spark.range(0, 400, 1, partitions).selectExpr("cast(id as int) as number")


def test_a_task_that_fails_twice_in_the_middle(small: Any, store_url: str):
    """Issue 5: under task retry the multiset of arguments equals the frame's."""
    write(_numbers(small).mapInArrow(_failing_twice, "number int"))

    assert numbers_in(store_url) == ONCE


def test_a_shuffle_that_is_not_the_same_again(small: Any, store_url: str):
    """Issue 5: rows that move to other partitions when a task is run again."""
    shuffled = _numbers(small, 3).repartition(2).mapInArrow(_failing_twice, "number int")
    write(shuffled.repartition(3))

    assert numbers_in(store_url) == ONCE


def test_python_workers_killed_in_mid_write(small: Any, store_url: str):
    """Issue 5: kill -9 of a Python worker."""
    write(_numbers(small).mapInArrow(_killing, "number int"))

    assert numbers_in(store_url) == ONCE


def test_a_task_that_never_works_leaves_nothing(small: Any, store_url: str):
    frame = _numbers(small)

    with pytest.raises(Exception, match=r"column number: .*bad|NaN"):
        write(frame.selectExpr("number", "if(number = 399, double('inf'), 1D) as x"), rejects=None)

    assert jobs_in(store_url) == []
    write(frame)
    assert numbers_in(store_url) == ONCE


def _batch(*numbers: int) -> Any:
    return pa.record_batch({"number": pa.array(numbers, pa.int32())})


def _sink(spark: Any, url: str, **options: str) -> BatchSink:
    schema = spark.sql("select 1 as number").schema
    return BatchSink(schema, {"task": "mail:send", "url": url, **options}, False)


def test_of_two_attempts_at_the_same_rows_one_counts(spark: Any, store_url: str):
    """Issue 5: speculation; both attempts run to their end, and a third after the commit."""
    sink = _sink(spark, store_url)
    first = sink.write(iter([_batch(1, 2), _batch(3)]))
    twin = sink.write(iter([_batch(3, 2), _batch(1)]))
    other = sink.write(iter([_batch(4)]))

    sink.commit([twin, other])
    zombie = sink.write(iter([_batch(1, 2, 3)]))

    assert len({part.name for part in (first, twin, other, zombie)}) == 4
    assert numbers_in(store_url) == Counter([1, 2, 3, 4])


def test_a_commit_whose_answer_was_lost_is_made_again(spark: Any, store_url: str):
    sink = _sink(spark, store_url)
    part = sink.write(iter([_batch(1, 2)]))

    sink.commit([part])
    sink.commit([part])
    sink.abort([part])

    assert numbers_in(store_url) == Counter([1, 2])


def test_a_write_that_is_made_again_in_other_partitions(spark: Any, store_url: str):
    """Issue 5: a changed partition count, after a driver that died before its commit."""
    _sink(spark, store_url, write="import-7").write(iter([_batch(1, 2, 3)]))
    again = _sink(spark, store_url, write="import-7")

    again.commit([again.write(iter([_batch(3)])), again.write(iter([_batch(2, 1)])), None])

    assert numbers_in(store_url) == Counter([1, 2, 3])


def test_an_aborted_write_leaves_neither_jobs_nor_rejects(
    spark: Any, store_url: str, tmp_path: Path
):
    schema = spark.sql("select 1D as x").schema
    options = {"task": "a:b", "url": store_url, "rejects": str(tmp_path / "rejects")}
    sink = BatchSink(schema, options, False)
    part = sink.write(iter([pa.record_batch({"x": [1.0, float("nan")]})]))
    hidden = [path.name for path in (tmp_path / "rejects").iterdir()]

    sink.abort([part, None])

    assert [name[0] for name in hidden] == ["_"]
    assert list((tmp_path / "rejects").iterdir()) == []
    assert jobs_in(store_url) == []


DRIVER = """
import os, signal, sys
from pathlib import Path
import penstock.spark

def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def kill_java(batches):
    for batch in batches:
        yield batch
    os.kill(parent_of(os.getppid()), signal.SIGKILL)

spark = penstock.spark.session("local[1]", url=sys.argv[1])
frame = spark.range(0, 400, 1, 2).selectExpr("cast(id as int) as number")
frame = frame.mapInArrow(kill_java, "number int")
print("writing", flush=True)
writer = frame.write.format("penstock").option("task", "mail:send").option("write", "import-9")
writer.mode("append").save()
"""


def test_a_driver_killed_before_its_commit_has_written_nothing(spark: Any, store_url: str):
    """Issue 5: nothing is published, and a later write works."""
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, store_url],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert "writing" in killed.stdout
    assert killed.returncode != 0
    assert jobs_in(store_url) == []
    write(_numbers(spark), write="import-9")
    assert numbers_in(store_url) == ONCE


def test_a_password_is_in_no_plan_exception_or_event_log_of_a_write(
    spark: Any, postgres_store_url: str, event_log: Path
):
    """A canary password travels to every process that needs it, and is written down nowhere."""
    canary = "canary-7d20"
    scheme, _, rest = postgres_store_url.partition("://")
    user, _, place = rest.rpartition("@")
    url = f"{scheme}://{user.partition(':')[0]}:{canary}@{place}"
    frame = _numbers(spark)
    spoken: list[str] = []

    write(frame, url=url)
    for bad, options in (
        (frame, {"url": f"postgresql://ada:{canary}@127.0.0.1:1/none"}),
        (frame.selectExpr("double('nan') as x"), {"url": url}),
        (frame, {"url": url, "key_column": "none"}),
    ):
        with pytest.raises(Exception) as raised:  # noqa: PT011  each says something else
            write(bad, **options)
        spoken += [str(raised.value), repr(raised.value)]

    files = [path for path in event_log.rglob("*") if path.is_file()]
    spoken += [path.read_text(errors="replace") for path in files]
    assert files
    assert not [text[:200] for text in spoken if canary in text]
    assert len(arguments_in(postgres_store_url)) == 400
