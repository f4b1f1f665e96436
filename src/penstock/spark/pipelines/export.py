"""Export: history that the lake has not yet goes there, each row once.

The mark in the manifest decides what is new, row by row, and moves with the files in one rename.
Where the stream believes it stands is only a hint: it may be lost, older, or tell its rows again.
"""

from __future__ import annotations

import re
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
from penstock.spark.pipelines.write import spark_path, stage
from penstock.spark.store import store_of
from penstock.spark.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.broker import Broker
    from penstock.spark.pipelines.lake import Writing
    from penstock.spark.pipelines.manifest import Manifest

Told = Callable[[str, int], None]
_RAISED = re.compile(r"[\w.]*(Error|Exception)\b")
ROWS_AT_ONCE = 1_000_000  # what is killed does no more than these again


class Exported(msgspec.Struct, kw_only=True):
    """What an export did: the rows taken, by table."""

    taken: dict[str, int]
    # Positions that the store no longer has and the lake never had: the last here, the first there.
    gap: tuple[int, int] | None = None


def export(
    spark: SparkSession, writing: Writing, told: Told, rows_at_once: int = ROWS_AT_ONCE
) -> Exported:
    """Take all of the store's history that is there now, so many rows at once.

    `told` hears of every batch that is in the lake: the table, and its rows so far.
    """
    broker = open_broker(store_of(spark), create=False)
    try:
        store = broker.reach(Selection(table="attempts"), at_most=1).store
        gap = gap_before(broker, store, writing.manifest())
        marks: dict[str, int] = {
            table: writing.manifest().table(table).marks.get(store, 0) for table in RAW
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
    return Exported(taken=taken, gap=gap)


def _has_more(broker: Broker, selection: Selection, mark: int) -> bool:
    """Whether there is a row behind the mark: to find that out with a stream takes seconds."""
    last = broker.reach(selection, mark).position
    if last <= mark:
        return False
    if broker.reach(selection, mark, at_most=1).position < last:
        return True
    # It is the last row of all, or there is none of this table.
    return sum(batch.num_rows for batch in broker.scan(Slice(selection, last - 1, last))) > 0


def gap_before(broker: Broker, store: str, manifest: Manifest) -> tuple[int, int] | None:
    """The mark and the oldest row that is kept, if rows in between may have been pruned."""
    mark = max((manifest.table(table).marks.get(store, 0) for table in RAW), default=0)
    kept = broker.history(after=0, limit=1)
    if not mark or not kept or kept[0].position <= mark + 1:
        return None
    return mark, kept[0].position


def _drain(stream: DataFrame, writing: Writing, table: str, told: Told) -> int:
    taken = 0

    def each(batch: DataFrame, number: int) -> None:
        nonlocal taken
        del number
        taken += take(batch, writing, table)
        told(table, taken)

    sink: Any = stream.writeStream  # its types leave out what foreachBatch is given
    # Of this run alone: one that is kept could belong to another store, or to a lake as it was.
    with tempfile.TemporaryDirectory(prefix="penstock-") as checkpoint:
        query = (
            sink.foreachBatch(each)
            .option("checkpointLocation", spark_path(Path(checkpoint)))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise PenstockError(
                f"the export stopped while it took {table}: {_cause(error)}. What it took is in the"
                " lake; run it again, and it goes on from there"
            ) from None
    return taken


def _cause(error: Exception) -> str:
    """The sentence that began it, out of what Java and Python wrapped around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("penstock.errors.")]
    said = (ours or [line for line in lines if _RAISED.match(line)] or lines or ["?"])[-1]
    return said.partition(": ")[2] if ours else said


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
