"""Spark beside a store in Redis: rows become jobs, their history is read, and kept in a lake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock.spark
from penstock.broker.protocol import Broker
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.job import succeeded
from penstock.spark.pipelines.lake.lake import Lake
from tests.spark.frames import numbers_in, write
from tests.spark.pipelines.exported import exported, of_lake, of_store


@pytest.fixture
def store(redis_store_url: str) -> Iterator[Broker]:
    broker = open_broker(redis_store_url)
    yield broker
    broker.close()


def test_a_frame_becomes_jobs_and_their_history_is_read_and_goes_to_the_lake(
    shared_spark: Any, store: Broker, redis_store_url: str, tmp_path: Any
) -> None:
    spark = penstock.spark.attach(shared_spark, url=redis_store_url)
    frame = spark.range(0, 60, 1, 2).selectExpr("cast(id as int) as number", "'t' as text")
    write(frame)
    worker = WorkerRow(id="w", tasks={"mail:send": 1})
    [jobs] = store.claim([Wanted(worker, 100)]).jobs
    assert numbers_in(redis_store_url) == dict.fromkeys(range(60), 1)
    store.settle([(job, succeeded(b"1")) for job in jobs[:50]])

    lake = Lake(tmp_path / "lake")
    taken = exported(spark, lake, rows_at_once=20).taken

    attempts = spark.read.format("penstock").option("table", "attempts").load()
    assert (attempts.count(), taken["attempts"]) == (50, 50)
    assert of_lake(lake) == of_store(store)
