"""Spark over shards: rows become jobs on all, their histories are read and go to a lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock.spark
from penstock.broker.lake_mark import Mark
from penstock.broker.slice import Selection
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.brokers.sharded import ShardedBroker
from penstock.errors import Refused
from penstock.job import Job, succeeded
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.report.rollup_source import StoreRollups, from_store
from penstock.spark.source.shards import store_id, stores_in
from tests.spark.frames import numbers_in, write
from tests.spark.pipelines.exported import exported

SHOWN = ("shard", "position", "job", "state")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Two files as shards; not copies of one, which would have its id."""
    file = tmp_path / "shards.toml"
    file.write_text('[shards]\na = "sqlite:///a.db"\nb = "sqlite:///b.db"\n')
    return f"shards:///{file}"


@pytest.fixture
def store(url: str) -> Iterator[ShardedBroker]:
    broker = open_broker(url)
    assert isinstance(broker, ShardedBroker)
    yield broker
    broker.close()


@pytest.fixture
def spark(shared_spark: Any, url: str) -> Any:
    return penstock.spark.attach(shared_spark, url=url)


def ended(store: ShardedBroker, jobs: int) -> list[Job[Any]]:
    """So many jobs run and succeed."""
    worker, taken = WorkerRow(id="w", tasks={"mail:send": 1}), list[Job[Any]]()
    while len(taken) < jobs:
        [some] = store.claim([Wanted(worker, jobs - len(taken))]).jobs
        store.settle([(job, succeeded(b"1")) for job in some])
        taken += some
        if not some:
            assert store.wait(None, 30)  # what other processes stored
    return taken


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*SHOWN).collect())


def of_shards(store: ShardedBroker) -> list[tuple[Any, ...]]:
    """The attempts of each shard, as its own history has them."""
    return sorted(
        (store_id(each), row.position, row.job, str(row.state))
        for each in stores_in(store).values()
        for row in each.history()
        if row.kind == "attempt"
    )


def test_rows_with_ids_go_to_all_shards_once_however_often_they_are_written(
    spark: Any, store: ShardedBroker, url: str
) -> None:
    frame = spark.range(0, 60, 1, 3).selectExpr("id", "cast(id as int) as number", "'t' as text")

    for _ in range(2):
        write(frame, id_column="id", write="load")

    assert numbers_in(url) == dict.fromkeys(range(60), 1)
    ready = {name: each.count()[0].ready for name, each in stores_in(store).items()}
    assert sum(ready.values()) == 60
    assert min(ready.values()) > 10


def test_rows_without_a_key_go_to_a_shard_by_partition(
    spark: Any, store: ShardedBroker, url: str
) -> None:
    frame = spark.range(0, 600, 1, 8).selectExpr("cast(id as int) as number", "'t' as text")

    write(frame, write="load")
    write(frame, write="load")

    assert numbers_in(url) == dict.fromkeys(range(600), 1)


def test_the_histories_are_read_with_their_shards_and_a_lake_has_a_mark_on_each(
    spark: Any, store: ShardedBroker, tmp_path: Any
) -> None:
    frame = spark.range(0, 60, 1, 3).selectExpr("id", "cast(id as int) as number", "'t' as text")
    write(frame, id_column="id", write="load")
    jobs = ended(store, 50)
    lake = Lake(tmp_path / "lake")

    assert exported(spark, lake, rows_at_once=7).taken["attempts"] == 50
    assert exported(spark, lake).taken["attempts"] == 0

    expected = of_shards(store)
    assert len({shard for shard, *_ in expected}) == 2
    assert rows_of(spark.read.format("penstock").option("table", "attempts").load()) == expected
    table = lake.table("attempts").delta.to_pyarrow_table(columns=list(SHOWN)).to_pylist()
    assert sorted(tuple(row[name] for name in SHOWN) for row in table) == expected
    [mark] = store.records(Mark)
    whole = store.reach(Selection(table="attempts")).position
    assert mark.position == whole
    for each in stores_in(store).values():
        [own] = each.records(Mark)
        assert own.position == each.reach(Selection(table="attempts")).position

    ended(store, 10)
    assert exported(spark, lake).taken["attempts"] == 10
    assert {job.id for job in jobs} < {row["job"] for row in lake.table("attempts").rows()}


def test_a_position_of_the_history_is_where_reading_begins(
    spark: Any, store: ShardedBroker
) -> None:
    write(spark.range(0, 20).selectExpr("cast(id as int) as number", "'t' as text"), write="load")
    ended(store, 10)
    seen = store.history()[-1].position
    later = {job.id for job in ended(store, 10)}

    frame = spark.read.format("penstock").option("table", "attempts").option("after", seen).load()

    assert {row["job"] for row in frame.collect()} == later


def test_a_report_adds_up_the_shards(spark: Any, store: ShardedBroker, tmp_path: Any) -> None:
    frame = spark.range(0, 60, 1, 3).selectExpr("id", "cast(id as int) as number", "'t' as text")
    write(frame, id_column="id", write="load")
    ended(store, 50)
    lake = Lake(tmp_path / "lake")
    exported(spark, lake)

    assert from_store(store, lake)
    assert sum(row["ready"] for row in StoreRollups(store).open_jobs()) == 10
    stores_in(store)["b"].prune(2e10)
    assert not from_store(store, lake)


def test_shards_that_are_copies_of_one_file_are_not_exported(
    shared_spark: Any, sqlite_shards: str, tmp_path: Path
) -> None:
    open_broker(sqlite_shards).close()  # makes the map
    spark = penstock.spark.attach(shared_spark, url=sqlite_shards)

    with pytest.raises(Refused, match="shards 'a' and 'b' have one id"):
        exported(spark, Lake(tmp_path / "lake"))
