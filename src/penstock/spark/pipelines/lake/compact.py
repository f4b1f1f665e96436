"""Compact: the small files of a day become large ones; rows, marks and readers see no change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.functions import col

from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.raw_tables import RAW, read_raw
from penstock.spark.pipelines.lake.write_parquet import stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.lake.lake import LakeWriter
    from penstock.spark.pipelines.lake.manifest import LakeFile

LARGE = 128 * 1024 * 1024


def compact(
    spark: SparkSession,
    writing: LakeWriter,
    told: Callable[[str, str, int, int], None],
    large: int = LARGE,
) -> int:
    """Join the files of each day and shard that has several small ones; the files there are less.

    `told` hears of every day that is done: table, day, files before and after.
    """
    fewer = 0
    for table in RAW:
        for day in sorted({file.day for file in writing.manifest().table(table).files}):
            for small in _small(writing, table, day, large):
                after = _join(spark, writing, table, small, large)
                told(table, day, len(small), after)
                fewer += len(small) - after
    return fewer


def _small(writing: LakeWriter, table: str, day: str, large: int) -> list[list[LakeFile]]:
    by_shard: dict[str, list[LakeFile]] = {}
    for file in writing.manifest().table(table).files:
        if file.day == day and file.bytes < large // 2:
            by_shard.setdefault(file.shard, []).append(file)
    return [files for files in by_shard.values() if len(files) > 1]


def _join(
    spark: SparkSession,
    writing: LakeWriter,
    table: str,
    small: list[LakeFile],
    large: int,
) -> int:
    pieces = math.ceil(sum(file.bytes for file in small) / large)
    # From the manifest, not by day: large files of the day stay as they are.
    rows = read_raw(spark, writing.lake, table, paths=[file.path for file in small])
    rows = (
        rows.coalesce(1) if pieces == 1 else rows.repartitionByRange(pieces, "position")
    ).sortWithinPartitions("position")
    with writing.staging() as place:
        files = stage(rows.withColumn("_shard", col("shard")), place)
        before, after = (sum(file.rows for file in each) for each in (small, files))
        if before != after:
            raise PenstockError(
                f"{table} of {small[0].day}, shard {small[0].shard}: {before:,} rows were to be"
                f" joined and {after:,} came out; nothing was changed"
            )
        writing.publish(table, files, replaces=small, keeps_generation=True)
    return len(files)
