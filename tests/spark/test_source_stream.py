"""The source as a stream: every row once, whoever commits late, whatever is started again."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

import penstock.spark
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import Selection
from penstock.brokers import open_broker
from penstock.errors import Refused, SchemaTooNew
from penstock.job import succeeded
from penstock.spark.source.stream import TableStream
from penstock.testing.conformance.factories import a_worker, begun, claim, claim_for, some_jobs
from tests.spark.conftest import whatever_the_store
from tests.spark.stored import LATE, end, fill

ONLY_POSITION = StructType([StructField("position", StringType())])


@pytest.fixture
def broker(store_url: str, clock: Any) -> Iterator[Broker]:
    broker = open_broker(store_url, clock)
    yield broker
    broker.close()


def positions_of(broker: Broker, kind: str = "attempt") -> list[Position]:
    return [row.position for row in broker.history(limit=10_000) if row.kind == kind]


class Run:
    """A query over a checkpoint that can be run again; what each of its batches held."""

    def __init__(self, spark: Any, folder: Path, table: str = "attempts", **options: Any) -> None:
        self._spark = spark
        self.checkpoint = folder / "checkpoint"
        self._options = {"table": table, **options}
        self.batches: dict[int, list[int]] = {}

    def start(self, **trigger: Any) -> Any:
        stream = self._spark.readStream.format("penstock")
        for name, value in self._options.items():
            stream = stream.option(name, str(value))
        return (
            stream.load()
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def now(self) -> list[Position]:
        """Read what there is; the positions that came, in this run and before."""
        self.start(availableNow=True).awaitTermination()
        return self.positions

    @property
    def positions(self) -> list[Position]:
        return sorted(position for rows in self.batches.values() for position in rows)

    def _keep(self, frame: Any, number: int) -> None:
        rows = sorted(row.position for row in frame.select("position").collect())
        # A batch that comes again is the same.
        assert self.batches.setdefault(number, rows) == rows


# REQUIREMENTS S9
def test_a_run_reads_what_there_is_in_bounded_batches_and_the_next_one_goes_on(
    spark, broker, clock, tmp_path
):
    """SPARK 2: AvailableNow, admission control, and offsets that are kept."""
    broker.enqueue(some_jobs(clock, 25))
    end(broker, clock, claim(broker, limit=20))
    run = Run(spark, tmp_path, rows_per_trigger=8)

    query = run.start(availableNow=True)
    query.awaitTermination()
    assert run.positions == positions_of(broker)
    # S9: how far behind it is stands in its progress.
    offsets = [progress["sources"][0] for progress in query.recentProgress][:2]
    store = broker.reach(Selection(table="attempts"))
    for offset, last in zip(offsets, (7, 15), strict=True):
        assert json.loads(offset["latestOffset"]) == {store.store: store.position}
        assert json.loads(offset["endOffset"]) == {store.store: run.positions[last]}
    assert [len(rows) for rows in run.batches.values()] == [8, 8, 4]

    end(broker, clock, claim(broker, limit=20))
    assert run.now() == positions_of(broker)
    assert len(run.positions) == 25


def test_the_last_batch_comes_again_as_it_was_after_a_crash(spark, broker, clock, tmp_path):
    """What was read and not confirmed is read again: the same rows, though there are more now."""
    broker.enqueue(some_jobs(clock, 10))
    end(broker, clock, claim(broker, limit=5))
    run = Run(spark, tmp_path)
    run.now()
    for path in (run.checkpoint / "commits").glob("*0*"):
        path.unlink()
    end(broker, clock, claim(broker, limit=5))

    assert run.now() == positions_of(broker)
    assert [len(rows) for rows in run.batches.values()] == [5, 5]


def test_a_store_that_is_upgraded_in_the_middle_of_a_stream_is_a_sentence(sqlite_url, clock):
    """And with the version that knows it, the stream goes on from the same offset."""
    broker = open_broker(sqlite_url, clock)
    broker.enqueue(some_jobs(clock, 4))
    end(broker, clock, claim(broker, limit=4))
    stream = TableStream({"table": "attempts", "url": sqlite_url}, ONLY_POSITION)
    start = stream.initialOffset()
    set_schema = "update penstock_meta set value = ? where name = 'schema'"
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    read = "select value from penstock_meta where name = 'schema'"
    [(known,)] = connection.execute(read).fetchall()

    connection.execute(set_schema, ("999",))
    with pytest.raises(SchemaTooNew) as error:
        stream.latestOffset(start, ReadAllAvailable())
    connection.execute(set_schema, (known,))
    parts = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))

    assert len(str(error.value).splitlines()) == 1
    batches = [batch for part in parts for batch in stream.read(part)]
    rows = [row["position"] for batch in batches for row in batch.to_pylist()]
    assert sorted(rows) == positions_of(broker)
    connection.close()
    broker.close()


def test_another_store_under_the_same_checkpoint_is_refused(
    shared_spark, broker, clock, tmp_path, store_url
):
    broker.enqueue(some_jobs(clock, 2))
    end(broker, clock, claim(broker, limit=2))
    run = Run(shared_spark, tmp_path, url=store_url)
    run.now()
    other = f"sqlite:///{tmp_path}/other.db"
    open_broker(other).close()

    with pytest.raises(Exception, match=r"the checkpoint is of the store .* of its own"):
        Run(shared_spark, tmp_path, url=other).now()


# REQUIREMENTS S8
def test_writers_that_commit_late_and_out_of_order_are_neither_skipped_nor_read_twice(
    shared_spark, postgres_store_url, clock, tmp_path
):
    """Issue 5: while it reads, and across a restart."""
    broker = open_broker(postgres_store_url, clock)
    spark = penstock.spark.attach(shared_spark, url=postgres_store_url)
    run = Run(spark, tmp_path, rows_per_trigger=7)
    broker.enqueue(some_jobs(clock, 40))
    late = [psycopg.connect(postgres_store_url) for _ in range(3)]
    for connection in late:
        connection.execute(LATE, (clock.now(),))  # its position is taken, and nobody sees it
        end(broker, clock, claim(broker, limit=5))

    before = run.now()
    late[1].commit()  # out of order
    end(broker, clock, claim(broker, limit=5))
    query = run.start(processingTime="0 seconds")
    late[0].commit()
    writer = threading.Thread(target=end, args=(broker, clock, claim(broker, limit=10)))
    writer.start()
    writer.join()
    query.processAllAvailable()
    query.stop()
    between = run.positions
    late[2].commit()
    after = run.now()

    assert before == []  # all that is committed lies behind a writer that is still open
    assert 0 < len(between) < len(after)
    assert after == positions_of(broker)
    assert len(after) == len(set(after)) == 33
    for connection in late:
        connection.close()
    broker.close()


def test_a_stream_beside_many_workers_reads_each_row_once(spark, broker, clock, tmp_path):
    """I13, with several processes' worth of writers, stopped and started in the middle."""
    broker.enqueue(some_jobs(clock, 200))
    run = Run(spark, tmp_path, rows_per_trigger=40)

    def worker(name: str) -> None:
        while jobs := claim_for(broker, a_worker(name), limit=5):
            broker.settle([(job, begun(succeeded(), clock.now())) for job in jobs])

    workers = [threading.Thread(target=worker, args=(f"worker-{n}",)) for n in range(4)]
    for thread in workers:
        thread.start()
    run.now()
    for thread in workers:
        thread.join()

    assert run.now() == positions_of(broker)
    assert len(run.positions) == 200


@whatever_the_store
def test_events_and_gauges_can_be_followed_too(spark, broker, clock, tmp_path):
    fill(broker, clock)

    for table, kind in (("events", "cancel"), ("gauges", "gauge")):
        read = Run(spark, tmp_path / table, table).now()

        assert set(positions_of(broker, kind)) <= set(read)
        assert not set(positions_of(broker)) & set(read)


@whatever_the_store
def test_jobs_cannot(spark, broker):
    with pytest.raises(Refused, match="only attempts, events and gauges can be read as a stream"):
        TableStream({"table": "jobs"}, ONLY_POSITION)


def test_a_stream_has_no_end():
    for option in ("until", "until_position"):
        with pytest.raises(Refused, match=f"'{option}' is for spark.read"):
            TableStream({"table": "attempts", option: "7"}, ONLY_POSITION)


def test_an_offset_names_the_store_and_keeps_to_the_limit(broker, store_url, clock):
    """The reader by hand: what Spark keeps in its checkpoint."""
    stream = TableStream({"table": "attempts", "url": store_url}, ONLY_POSITION)
    store = broker.reach(Selection(table="attempts")).store
    start = stream.initialOffset()
    assert start == {store: BEGINNING}
    assert stream.latestOffset(start, ReadMaxRows(5)) == start

    broker.enqueue(some_jobs(clock, 9))
    end(broker, clock, claim(broker, limit=6))
    positions = positions_of(broker)

    assert stream.getDefaultReadLimit() == ReadMaxRows(1_000_000)
    assert stream.latestOffset(start, ReadMaxRows(4)) == {store: positions[3]}
    assert stream.latestOffset(start, ReadAllAvailable()) == {store: positions[5]}
    stream.prepareForTriggerAvailableNow()
    end(broker, clock, claim(broker, limit=3))
    assert stream.latestOffset(start, ReadAllAvailable()) == {store: positions[5]}
    assert stream.latestOffset({store: positions[5]}, ReadMaxRows(4)) == {store: positions[5]}
    parts = stream.partitions({store: positions[1]}, {store: positions[4]})
    read = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert [row["position"] for row in read] == positions[2:5]
    assert stream.partitions({store: positions[1]}, {store: positions[1]}) == []
    with pytest.raises(Refused, match=f"the checkpoint is of the store other, and .* {store}"):
        stream.latestOffset({"other": 3}, ReadMaxRows(4))


def test_it_can_begin_behind_a_position(broker, store_url, clock):
    """For whoever has the rows before from elsewhere."""
    broker.enqueue(some_jobs(clock, 2))
    end(broker, clock, claim(broker, limit=2))
    first, last = positions_of(broker)
    options = {"table": "attempts", "url": store_url, "after": first}
    stream = TableStream(options, ONLY_POSITION)

    [(store, position)] = stream.initialOffset().items()

    assert position == first
    assert stream.latestOffset({store: position}, ReadMaxRows(5)) == {store: last}


def test_a_checkpoint_that_is_ahead_of_its_store_is_refused(broker, store_url, clock):
    """The store was restored from a backup: what comes now would be taken for read."""
    stream = TableStream({"table": "attempts", "url": store_url}, ONLY_POSITION)
    [store] = stream.initialOffset()

    with pytest.raises(Refused, match="before it was restored from a backup"):
        stream.latestOffset({store: f"{1 << 60:020d}"}, ReadMaxRows(5))
    for wrong in ("one", 12):  # a number: of a development version
        with pytest.raises(Refused, match=f"'{wrong}' is no position of this store"):
            stream.latestOffset({store: wrong}, ReadMaxRows(5))


def test_a_password_is_in_no_checkpoint_plan_or_exception(
    shared_spark, postgres_store_url, clock, tmp_path, event_log
):
    """A canary in the option url, read as a stream, and once where nothing answers."""
    canary = "canary-77ab"
    broker = open_broker(postgres_store_url, clock)
    broker.enqueue(some_jobs(clock, 3))
    end(broker, clock, claim(broker, limit=3))
    spark = penstock.spark.attach(shared_spark, url="sqlite:////nowhere/at.db")
    scheme, _, rest = postgres_store_url.partition("://")
    user, at, place = rest.partition("@")
    url = f"{scheme}://{user.partition(':')[0]}:{canary}{at or '@'}{place if at else rest}"
    run = Run(spark, tmp_path, url=url)
    query = run.start(availableNow=True)
    query.awaitTermination()
    spoken = [str(query.lastProgress), str(query.explain)]
    with pytest.raises(Exception, match=r"\*\*\*@127\.0\.0\.1:1") as raised:
        Run(spark, tmp_path / "closed", url=f"postgresql://u:{canary}@127.0.0.1:1/x").now()

    files = [*run.checkpoint.rglob("*"), *event_log.rglob("*")]
    spoken += [path.read_text(errors="replace") for path in files if path.is_file()]
    spoken += [str(raised.value), query._jsq.toString()]
    assert run.positions == positions_of(broker)
    assert not [text[:200] for text in spoken if canary in text]
    broker.close()
