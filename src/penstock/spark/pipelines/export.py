"""Export: history that the lake has not yet goes there, each row once.

The mark in the manifest decides what is new, row by row, and moves with the files in one rename.
Where the stream believes it stands is only a hint: it may be lost, older, or tell its rows again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col, lit

from penstock.spark.pipelines.raw import SCHEMAS, day_of
from penstock.spark.pipelines.write import stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.pipelines.lake import Writing

Told = Callable[[str, int], None]


def export(spark: SparkSession, writing: Writing, told: Told) -> dict[str, int]:
    """Take all of the store's history that is there now; the rows taken, by table.

    `told` hears of every batch: the table, and its rows so far.
    """
    return {table: _export(spark, writing, table, told) for table in SCHEMAS}


def _export(spark: SparkSession, writing: Writing, table: str, told: Told) -> int:
    taken = 0

    def each(batch: DataFrame, number: int) -> None:
        nonlocal taken
        del number
        taken += take(batch, writing, table)
        told(table, taken)

    stream: Any = spark.readStream.format("penstock").option("table", table)
    # Of this run alone: one that is kept could belong to another store, or to a lake as it was.
    with tempfile.TemporaryDirectory(prefix="penstock-") as checkpoint:
        query = (
            stream.load()
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return taken


def take(frame: DataFrame, writing: Writing, table: str) -> int:
    """Add those rows of a frame that the lake has not yet; returns how many.

    A frame must hold everything of a shard between the table's mark and its own last row.
    """
    marks = writing.manifest().table(table).marks
    rows = frame.select(*_columns(table)).where(_after(marks))
    with writing.staging() as place:
        files = stage(
            rows.withColumn("_shard", col("shard")).withColumn("day", day_of(table)), place
        )
        if files:
            writing.publish(table, files)
    return sum(file.rows for file in files)


def _columns(table: str) -> list[str]:
    depth, names, start = 0, list[str](), 0
    schema = SCHEMAS[table]
    for at, sign in enumerate(f"{schema},"):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            names.append(schema[start:at].split()[0])
            start = at + 1
    return names


def _after(marks: dict[str, int]) -> Column:
    new = lit(True)
    for shard, mark in marks.items():
        new &= (col("shard") != shard) | (col("position") > mark)
    return new
