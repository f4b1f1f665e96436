"""Export: history that the lake has not yet goes there, each row once.

The mark in the manifest decides what is new, row by row, and moves with the files in one rename.
Whoever reads the rows only has a hint of where to begin: rows that come again are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import Selection, Slice
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.export_slices import copy
from penstock.spark.pipelines.lake.marks import tell
from penstock.spark.pipelines.lake.raw_tables import RAW, RawTable, day_of
from penstock.spark.pipelines.lake.write_parquet import cause_of, stage
from penstock.spark.session_store import store_of
from penstock.spark.source.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import LakeWriter
    from penstock.spark.pipelines.lake.manifest import LakeGap

Told = Callable[[str, int], None]
ROWS_AT_ONCE = 1_000_000  # what is killed does no more than these again


class Exported(msgspec.Struct, kw_only=True):
    """What an export did: the rows taken, by table, and what the lake learnt that it misses."""

    taken: dict[str, int]
    gaps: list[LakeGap]


def export(
    spark: SparkSession,
    writing: LakeWriter,
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
        manifest = writing.manifest()
        known = manifest.reached.get(store, BEGINNING)
        until = broker.reach(Selection(table="attempts"), known).position
        # A table in which nothing happened has an older mark, and nothing up to there all the same.
        marks: dict[str, Position] = {
            table: max(manifest.table(table).marks.get(store, BEGINNING), known) for table in RAW
        }
        # A mark that is ahead of the store is refused here, in a sentence, and not inside Spark.
        more: list[RawTable] = [
            table for table in RAW if _has_more(broker, table, marks[table], until)
        ]
        taken = dict.fromkeys(marks, 0)
        for table in more:
            for stretch in _stretches(broker, table, marks[table], until, rows_at_once):
                taken[table] += _take(spark, broker, writing, stretch)
                told(table, taken[table])
        reached = writing.manifest().reached
        writing.change(reached={**reached, store: until})
        gaps += tell(broker, writing, store)
    finally:
        broker.close()
    return Exported(taken=taken, gaps=gaps)


def _has_more(broker: Broker, table: RawTable, after: Position, until: Position) -> bool:
    """Whether the table has rows in between: to find that out in Spark takes a second."""
    return broker.reach(Selection(table=table), after, at_most=1, patience=0, until=until).full


def _stretches(
    broker: Broker, table: RawTable, after: Position, until: Position, rows_at_once: int
) -> Iterator[Slice]:
    """What the table has in between, in stretches of so many rows."""
    while _has_more(broker, table, after, until):
        selection = Selection(table=table)
        reach = broker.reach(selection, after, rows_at_once, patience=0, until=until)
        last = reach.position if reach.full else until
        yield Slice(selection, after, last)
        after = last


def _take(spark: SparkSession, broker: Broker, writing: LakeWriter, stretch: Slice) -> int:
    """Take a stretch of the store. No stream: what its checkpoint would keep is in the manifest."""
    table = stretch.selection.table
    try:
        with writing.staging() as place:
            files = copy(spark, broker, stretch, place)
            if files:
                writing.publish(table, files)
        return sum(file.rows for file in files)
    except (PenstockError, PySparkException) as error:
        said = error if isinstance(error, PenstockError) else cause_of(error)
        raise PenstockError(
            f"the export stopped while it took {table}: {said}. What it took is in the lake; run it"
            " again, and it goes on from there"
        ) from None


def take(frame: DataFrame, writing: LakeWriter, table: str) -> int:
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


def _after(marks: dict[str, Position]) -> Column:
    new = lit(True)
    for shard, mark in marks.items():
        new &= (col("shard") != shard) | (col("position") > mark)
    return new
