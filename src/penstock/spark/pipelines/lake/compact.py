"""Compaction: joins the small files of a day into large ones; rows and marks stay the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

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
    writer: LakeWriter,
    on_progress: Callable[[str, str, int, int], None],
    large: int = LARGE,
) -> int:
    """Join the small files of each day and shard; returns how many files fewer there are.

    `on_progress` is called for each joined group: table, day, files before and after.
    """
    fewer = 0
    for table in RAW:
        for day in sorted({file.day for file in writer.manifest().table(table).files}):
            for small in _small_files(writer, table, day, large):
                after = _join(spark, writer, table, small, large)
                on_progress(table, day, len(small), after)
                fewer += len(small) - after
    return fewer


def _small_files(writer: LakeWriter, table: str, day: str, large: int) -> list[list[LakeFile]]:
    by_shard: dict[str, list[LakeFile]] = {}
    for file in writer.manifest().table(table).files:
        if file.day == day and file.bytes < large // 2:
            by_shard.setdefault(file.shard, []).append(file)
    return [files for files in by_shard.values() if len(files) > 1]


def _join(
    spark: SparkSession,
    writer: LakeWriter,
    table: str,
    small: list[LakeFile],
    large: int,
) -> int:
    pieces = math.ceil(sum(file.bytes for file in small) / large)
    # By path, not by day: large files of the day stay as they are.
    rows = read_raw(spark, writer.lake, table, paths=[file.path for file in small])
    rows = (
        rows.coalesce(1) if pieces == 1 else rows.repartitionByRange(pieces, "position")
    ).sortWithinPartitions("position")
    with writer.staging() as folder:
        files = stage(rows.withColumn("_shard", F.col("shard")), folder)
        before, after = (sum(file.rows for file in group) for group in (small, files))
        if before != after:
            raise PenstockError(
                f"{table} of {small[0].day}, shard {small[0].shard}: compaction read"
                f" {before:,} rows and wrote {after:,}; the lake was not changed"
            )
        writer.publish(table, files, replaces=small, keeps_generation=True)
    return len(files)
