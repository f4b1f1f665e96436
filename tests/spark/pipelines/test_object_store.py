"""A lake in an object store: a real S3 API on loopback, and the same promises as in a folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.spark.pipelines.lake.forget_rows import RowChoice, forget_rows
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake
from penstock.spark.pipelines.lake.marks import mark_name
from penstock.spark.pipelines.lake.raw_tables import read_raw
from penstock.spark.pipelines.lake.upkeep import compact
from penstock.testing.clock import Clock
from tests.spark.pipelines.exported import exported, nobody, of_lake, of_store, some_history
from tests.spark.pipelines.history import an_attempt, put_rows
from tests.spark.pipelines.s3_server import S3, running


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture
def lake(s3: S3, request: pytest.FixtureRequest) -> Lake:
    return Lake(f"s3://bucket/{request.node.name}", s3.options)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Broker]:
    broker = open_broker(sqlite_url)
    yield broker
    broker.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_an_export_to_s3_is_read_by_spark_and_holds_no_key(spark, store, lake):
    """The storage options reach the executors, and stand in no plan."""
    some_history(store, Clock(store.clock.now()), 20)
    exported(spark, lake, rows_at_once=15)
    some_history(store, Clock(store.clock.now()), 5)
    exported(spark, lake)
    assert compact(lake, nobody).fewer > 0

    assert of_lake(lake) == of_store(store)
    frame = read_raw(spark, lake, "attempts")
    found = sorted((row.position, row.job) for row in frame.collect())
    assert found == [row[:2] for row in of_store(store)["attempts"]]
    plan = frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    assert "canary" not in plan


def test_of_two_writers_one_commits(lake):
    put_rows(lake, "attempts", an_attempt(1))
    first, second = lake.table("attempts"), lake.table("attempts")

    first.commit([], marks={mark_name("a"): 2})
    with pytest.raises(CommitConflict):
        second.commit([], marks={mark_name("a"): 3})

    assert lake.table("attempts").mark(mark_name("a")) == 2


# REQUIREMENTS S18
def test_a_store_that_answers_503_for_a_while_gets_each_row_once(s3, lake):
    put_rows(lake, "attempts", an_attempt(1))
    s3.put("-/503=4")
    put_rows(lake, "attempts", an_attempt(2))
    s3.put("-/503=4")

    assert sorted(row["job"] for row in lake.table("attempts").rows()) == ["job-1", "job-2"]


def test_a_store_that_is_slow_gets_each_row_once(s3, lake):
    s3.put("-/slow=5")
    put_rows(lake, "attempts", an_attempt(1))
    s3.put("-/slow=0")

    assert [row["job"] for row in lake.table("attempts").rows()] == ["job-1"]


def test_a_store_that_refuses_is_one_sentence_and_the_next_run_goes_on(s3, lake):
    put_rows(lake, "attempts", an_attempt(1))
    s3.put("-/403=1000")
    try:
        with pytest.raises(Refused, match=r"the lake s3://.* cannot be read: ") as error:
            put_rows(lake, "attempts", an_attempt(2))
    finally:
        s3.put("-/403=0")
    assert len(str(error.value).splitlines()) == 1
    assert "canary" not in str(error.value)

    put_rows(lake, "attempts", an_attempt(1), an_attempt(2))

    assert sorted(row["job"] for row in lake.table("attempts").rows()) == ["job-1", "job-2"]


def test_what_cannot_be_reached_is_one_sentence(s3):
    closed = {**s3.options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "1"}
    for lake in (Lake("s3://no-such-bucket/lake", s3.options), Lake("s3://bucket/x", closed)):
        with pytest.raises(Refused, match=r"the lake s3://.* cannot be read: ") as error:
            lake.table("attempts")
        assert len(str(error.value).splitlines()) == 1
        assert "canary" not in str(error.value)


def test_rows_are_forgotten_in_an_object_store_too(lake):
    put_rows(lake, "attempts", an_attempt(1, key="ada"), an_attempt(2, key="bob"))

    assert forget_rows(lake, RowChoice(key="ada"), dry_run=False).rows["attempts"] == 1

    assert [row["key"] for row in lake.table("attempts").rows()] == ["bob"]


# REQUIREMENTS S17
@pytest.mark.parametrize("where", ["folder", "s3"])
def test_duckdb_polars_pyarrow_and_spark_read_the_same_rows(shared_spark, s3, tmp_path, where):
    # Here, not above: what was imported before the tests began is never freed (`gc.freeze` of
    # conftest.py), and duckdb complains of that at the end of each test process.
    import duckdb
    import polars as pl

    lake = Lake(tmp_path / "lake") if where == "folder" else Lake("s3://bucket/readers", s3.options)
    put_rows(lake, "attempts", an_attempt(1, tags={"tenant": "a"}), an_attempt(2))
    put_rows(lake, "attempts", an_attempt(3, reason="timeout"))
    compact(lake, nobody)
    put_rows(lake, "attempts", an_attempt(4))
    attempts = lake.table("attempts")
    names = ("position", "job", "reason", "ended_at", "day")
    dataset = attempts.delta.to_pyarrow_dataset()

    by_arrow = [tuple(row[name] for name in names) for row in dataset.to_table().to_pylist()]
    frame = pl.read_delta(attempts.place.uri, storage_options=lake.options)
    by_polars = frame.select(names).rows()
    duck = duckdb.connect()
    duck.execute("set timezone = 'UTC'")
    duck.register("attempts", dataset)
    answer = duck.sql(f"select {', '.join(names)} from attempts")
    by_duckdb = [tuple(row.values()) for row in answer.to_arrow_table().to_pylist()]
    rows = read_raw(shared_spark, lake, "attempts").select(*names).toArrow().to_pylist()
    by_spark = [tuple(row.values()) for row in rows]

    assert len(by_arrow) == 4
    answers = [
        sorted((*row[:2], row[2] or "", row[3].timestamp(), str(row[4])) for row in rows)
        for rows in (by_arrow, by_polars, by_duckdb, by_spark)
    ]
    assert answers == [answers[0]] * 4
