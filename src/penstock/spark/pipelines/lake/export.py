"""Export: copies history that the lake does not have yet from the store, each row once.

The mark in the manifest says what is new. It advances with the files, in one rename, so an export
that was killed goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import Selection, Slice
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.export_slices import copy_slice
from penstock.spark.pipelines.lake.marks import put_mark
from penstock.spark.pipelines.lake.raw_tables import RAW, RawTable, day_of
from penstock.spark.pipelines.lake.write_parquet import cause_of, stage
from penstock.spark.session_store import store_of
from penstock.spark.source.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import LakeWriter
    from penstock.spark.pipelines.lake.manifest import LakeGap

OnProgress = Callable[[str, int], None]
ROWS_AT_ONCE = 1_000_000  # an export that is killed repeats at most these


class Exported(msgspec.Struct, kw_only=True):
    """What an export did: rows copied by table, and gaps that the store reported."""

    taken: dict[str, int]
    gaps: list[LakeGap]


def export(
    spark: SparkSession,
    writer: LakeWriter,
    on_progress: OnProgress,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    hold: float | None = None,
) -> Exported:
    """Copy all history that the store has now, in batches of `rows_at_once`.

    `on_progress` is called after each batch: the table, and its rows so far. The store keeps what
    the lake does not have for `hold` seconds beyond its retention; None: unchanged.
    """
    broker = open_broker(store_of(spark), create=False)
    try:
        store = broker.reach(Selection(table="attempts"), at_most=1).store
        gaps = put_mark(broker, writer, store, hold)
        # Taken before any table is read: `until` is complete once every table was copied up to it.
        manifest = writer.manifest()
        known = manifest.reached.get(store, BEGINNING)
        until = broker.reach(Selection(table="attempts"), known).position
        # A table without new rows keeps an older mark, and is complete up to `known` all the same.
        marks: dict[str, Position] = {
            table: max(manifest.table(table).marks.get(store, BEGINNING), known) for table in RAW
        }
        # A mark ahead of the store (restored from a backup) is refused here, not inside Spark.
        more: list[RawTable] = [
            table for table in RAW if _has_more(broker, table, marks[table], until)
        ]
        taken = dict.fromkeys(marks, 0)
        for table in more:
            for batch in _batches(broker, table, marks[table], until, rows_at_once):
                taken[table] += _copy_batch(spark, broker, writer, batch)
                on_progress(table, taken[table])
        reached = writer.manifest().reached
        writer.change(reached={**reached, store: until})
        gaps += put_mark(broker, writer, store)
    finally:
        broker.close()
    return Exported(taken=taken, gaps=gaps)


def _has_more(broker: Broker, table: RawTable, after: Position, until: Position) -> bool:
    """Whether the table has rows between these positions; asked of the store, not of Spark."""
    return broker.reach(Selection(table=table), after, at_most=1, patience=0, until=until).full


def _batches(
    broker: Broker, table: RawTable, after: Position, until: Position, rows_at_once: int
) -> Iterator[Slice]:
    """The table's rows between these positions, as slices of so many rows."""
    while _has_more(broker, table, after, until):
        selection = Selection(table=table)
        reach = broker.reach(selection, after, rows_at_once, patience=0, until=until)
        last = reach.position if reach.full else until
        yield Slice(selection, after, last)
        after = last


def _copy_batch(spark: SparkSession, broker: Broker, writer: LakeWriter, batch: Slice) -> int:
    """Copy a slice. No Structured Streaming: the manifest already is the checkpoint."""
    table = batch.selection.table
    try:
        with writer.staging() as folder:
            files = copy_slice(spark, broker, batch, folder)
            if files:
                writer.publish(table, files)
        return sum(file.rows for file in files)
    except (PenstockError, PySparkException) as error:
        reason = error if isinstance(error, PenstockError) else cause_of(error)
        raise PenstockError(
            f"the export of {table} failed: {reason}. Rows copied so far are in the lake; run it"
            " again, and it continues from there"
        ) from None


def add_frame(frame: DataFrame, writer: LakeWriter, table: str) -> int:
    """Add the rows of a frame that are behind the table's mark; returns how many.

    Of each shard the frame must hold all rows between the mark and the frame's last row.
    """
    marks = writer.manifest().table(table).marks
    rows = frame.select(*columns_of(table)).where(_after(marks))
    with writer.staging() as folder:
        files = stage(
            rows.withColumn("_shard", F.col("shard")).withColumn("day", day_of(table)), folder
        )
        if files:
            writer.publish(table, files)
    return sum(file.rows for file in files)


def _after(marks: dict[str, Position]) -> Column:
    new = F.lit(True)
    for shard, mark in marks.items():
        new &= (F.col("shard") != shard) | (F.col("position") > mark)
    return new
