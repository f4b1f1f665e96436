"""Export: history that the lake has not yet goes there, each row once.

The mark in the manifest decides what is new, row by row, and moves with the files in one rename.
Where the stream believes it stands is only a hint: it may be lost, older, or tell its rows again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import col, lit

from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.slice import Selection, Slice
from penstock.spark.pipelines.raw import RAW, day_of
from penstock.spark.pipelines.telling import tell
from penstock.spark.pipelines.write import cause_of, spark_path, stage
from penstock.spark.store import store_of
from penstock.spark.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.broker import Broker
    from penstock.spark.pipelines.lake import Writing
    from penstock.spark.pipelines.manifest import LakeGap

Told = Callable[[str, int], None]
_STARTS = 4
_NOT_STARTED = "failed to connect back"
ROWS_AT_ONCE = 1_000_000  # what is killed does no more than these again


class Exported(msgspec.Struct, kw_only=True):
    """What an export did: the rows taken, by table, and what the lake learnt that it misses."""

    taken: dict[str, int]
    gaps: list[LakeGap]


def export(
    spark: SparkSession,
    writing: Writing,
    told: Told,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    hold: float | None = None,
) -> Exported:
    """Take all of the store's history that is there now, so many rows at once.

    `told` hears of every batch that is in the lake: the table, and its rows so far. The store keeps
    what is not in the lake yet for `hold` seconds beyond its retention; None: as it does already.
    """
    broker = open_broker(store_of(spark), create=False)
    try:
        store = broker.reach(Selection(table="attempts"), at_most=1).store
        gaps = tell(broker, writing, store, hold)
        # Before anything is read: all up to here is in the lake once every table was drained.
        until = broker.reach(Selection(table="attempts")).position
        manifest = writing.manifest()
        # A table in which nothing happened has an older mark, and nothing up to there all the same.
        known = manifest.reached.get(store, 0)
        marks: dict[str, int] = {
            table: max(manifest.table(table).marks.get(store, 0), known) for table in RAW
        }
        # A mark that is ahead of the store is refused here, in a sentence, and not inside Spark.
        more = {table: _has_more(broker, Selection(table=table), marks[table]) for table in RAW}
    finally:
        broker.close()
    taken = dict.fromkeys(marks, 0)
    for table, after in marks.items():
        if more[table]:
            options = {"table": table, "after": str(after), "rows_per_trigger": str(rows_at_once)}
            stream = spark.readStream.format("penstock").options(**options).load()
            taken[table] = _drain(stream, writing, table, told)
    reached = writing.manifest().reached
    writing.change(reached={**reached, store: max(until, reached.get(store, 0))})
    broker = open_broker(store_of(spark), create=False)
    try:
        gaps += tell(broker, writing, store)
    finally:
        broker.close()
    return Exported(taken=taken, gaps=gaps)


def _has_more(broker: Broker, selection: Selection, mark: int) -> bool:
    """Whether there is a row behind the mark: to find that out with a stream takes seconds."""
    last = broker.reach(selection, mark).position
    if last <= mark:
        return False
    if broker.reach(selection, mark, at_most=1).position < last:
        return True
    # It is the last row of all, or there is none of this table.
    return sum(batch.num_rows for batch in broker.scan(Slice(selection, last - 1, last))) > 0


def _drain(stream: DataFrame, writing: Writing, table: str, told: Told) -> int:
    taken = 0

    def each(batch: DataFrame, number: int) -> None:
        nonlocal taken
        del number
        taken += take(batch, writing, table)
        told(table, taken)

    for left in reversed(range(_STARTS)):
        try:
            _run(stream, each)
            break
        except StreamingQueryException as error:
            # Spark gives Python ten seconds to start, which a busy machine may not have. What was
            # taken is not taken again.
            if left and _NOT_STARTED in str(error):
                continue
            raise PenstockError(
                f"the export stopped while it took {table}: {cause_of(error)}. What it took is in"
                " the lake; run it again, and it goes on from there"
            ) from None
    return taken


def _run(stream: DataFrame, each: Callable[[DataFrame, int], None]) -> None:
    sink: Any = stream.writeStream  # its types leave out what foreachBatch is given
    # Of this run alone: one that is kept could belong to another store, or to a lake as it was.
    with tempfile.TemporaryDirectory(prefix="penstock-") as checkpoint:
        query = (
            sink.foreachBatch(each)
            .option("checkpointLocation", spark_path(Path(checkpoint)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def take(frame: DataFrame, writing: Writing, table: str) -> int:
    """Add those rows of a frame that the lake has not yet; returns how many.

    A frame must hold everything of a shard between the table's mark and its own last row.
    """
    marks = writing.manifest().table(table).marks
    rows = frame.select(*columns_of(table)).where(_after(marks))
    with writing.staging() as place:
        files = stage(
            rows.withColumn("_shard", col("shard")).withColumn("day", day_of(table)), place
        )
        if files:
            writing.publish(table, files)
    return sum(file.rows for file in files)


def _after(marks: dict[str, int]) -> Column:
    new = lit(True)
    for shard, mark in marks.items():
        new &= (col("shard") != shard) | (col("position") > mark)
    return new
