"""The sink on bad days: whatever dies or runs twice, each row is one job, or none is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from tests.spark.frames import APP, arguments_in, jobs_in, numbers_in, write

ONCE = dict.fromkeys(range(400), 1)


@pytest.fixture
def small(shared_spark: Any) -> Iterator[Any]:
    """The session with batches so small that a task has many."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = shared_spark.conf.get(name)
    shared_spark.conf.set(name, "20")
    yield shared_spark
    shared_spark.conf.set(name, before)


def _failing_twice(rows: Iterator[Any]) -> Iterator[Any]:
    """Hands on some rows, then fails, in the first two attempts of partition 0."""
    context = TaskContext.get()
    assert context is not None
    for place, row in enumerate(rows):
        if place == 150 and context.partitionId() == 0 and context.attemptNumber() < 2:
            raise OSError("the disk is gone")
        yield row


def _through(spark: Any, frame: Any, function: Any) -> Any:
    """The frame, its rows handed through a function in Python."""
    return spark.createDataFrame(frame.rdd.mapPartitions(function), "number int")


def _numbers(shared_spark: Any, partitions: int = 2) -> Any:
    return shared_spark.range(0, 400, 1, partitions).selectExpr("cast(id as int) as number")


def test_a_task_that_fails_twice_in_the_middle(small: Any, store_url: str, into: Any):
    """Issue 5: under task retry the multiset of arguments equals the frame's."""
    into(_through(small, _numbers(small), _failing_twice))

    assert numbers_in(store_url) == ONCE


# REQUIREMENTS S1
def test_a_shuffle_that_is_not_the_same_again(small: Any, store_url: str, into: Any):
    """Issue 5: rows that move to other partitions when a task is run again."""
    shuffled = _numbers(small, 3).orderBy("number").repartition(2)

    into(_through(small, shuffled, _failing_twice))

    assert numbers_in(store_url) == ONCE


def test_a_python_worker_killed_in_mid_write(small: Any, store_url: str, into: Any, tmp_path: Path):
    """Issue 5: kill -9 of a Python worker, in the middle of its rows."""
    told = tmp_path / "told"
    frame = _numbers(small).selectExpr(f"struct(number, '{told}' as told) as doomed")

    into(frame, app=APP, task="mail:doomed")

    assert told.read_text() == "killed"
    found = Counter(each["doomed"]["number"] for each in arguments_in(store_url))
    assert found == ONCE


def test_a_task_that_never_works_leaves_nothing(small: Any, store_url: str, into: Any):
    frame = _numbers(small)

    with pytest.raises(Exception, match="column x: inf cannot"):
        into(frame.selectExpr("number", "if(number = 399, double('inf'), 1D) as x"))

    assert jobs_in(store_url) == []
    into(frame)
    assert numbers_in(store_url) == ONCE


DRIVER = """
import os, signal, sys
from pathlib import Path
import penstock.spark

def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def kill_java(rows):
    yield from rows
    os.kill(parent_of(os.getppid()), signal.SIGKILL)

spark = penstock.spark.session("local[1]", url=sys.argv[1])
frame = spark.range(0, 400, 1, 2).selectExpr("cast(id as int) as number")
frame = spark.createDataFrame(frame.rdd.mapPartitions(kill_java), "number int")
print("writing", flush=True)
writer = frame.write.format("penstock").option("task", "mail:send").option("write", "import-9")
writer.mode("append").save()
"""


@pytest.mark.parametrize(
    "store_url",
    ["postgres", pytest.param("sqlite", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_a_driver_killed_before_its_commit_has_written_nothing(
    shared_spark: Any, store_url: str, into: Any
):
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
    into(_numbers(shared_spark), write="import-9")
    assert numbers_in(store_url) == ONCE


def test_a_password_is_in_no_plan_exception_or_event_log_of_a_write(
    shared_spark: Any, postgres_store_url: str, event_log: Path
):
    """A canary password travels to every process that needs it, and is written down nowhere."""
    canary = "canary-7d20"
    scheme, _, rest = postgres_store_url.partition("://")
    user, _, place = rest.rpartition("@")
    url = f"{scheme}://{user.partition(':')[0]}:{canary}@{place}"
    frame = _numbers(shared_spark)
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
