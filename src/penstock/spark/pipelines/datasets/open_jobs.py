"""Open jobs: what had not ended at one moment, by queue, from the jobs that stand in the store.

A lake keeps the answer of its last run, so that its report is of one moment: history up to the
mark, and what was open then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, count_if, greatest, lit, timestamp_micros, unix_micros, when
from pyspark.sql.functions import min as minimum

from penstock.spark.pipelines.datasets.clean_attempts import ENDED
from penstock.spark.pipelines.lake.raw_tables import utc_day
from penstock.spark.pipelines.lake.write_parquet import spark_path, stage
from penstock.spark.source.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.lake.lake import Lake, LakeWriter

TABLE = "open_jobs"
_NEEDED = ("queue", "state", "enqueued_at", "run_at")


def open_jobs(standing: DataFrame, now: float) -> DataFrame:
    """Per queue how many are ready, scheduled, waiting and running, from the table `jobs`.

    `oldest` is how long, in seconds, the one that is ready for longest has waited.
    """
    at = lit(round(now * 1_000_000)).cast("bigint")
    due_at = unix_micros(greatest("run_at", "enqueued_at"))
    ready = col("state") == "ready"
    due = ready & (due_at <= at)
    return (
        standing.where(~col("state").isin(*ENDED))
        .groupBy("queue")
        .agg(
            count_if(due).alias("ready"),
            count_if(ready & (due_at > at)).alias("scheduled"),
            count_if(col("state") == "waiting").alias("waiting"),
            count_if(col("state") == "running").alias("running"),
            ((at - minimum(when(due, due_at))) / 1_000_000).alias("oldest"),
        )
        .withColumn("at", timestamp_micros(at))
    )


def open_now(spark: SparkSession) -> DataFrame:
    """The open jobs of the session's store at this moment."""
    kinds = columns_of("jobs")
    # Without bodies, which are most of a job; and the store gives those states alone.
    narrow = ", ".join(f"{name} {kinds[name]}" for name in _NEEDED)
    reader = spark.read.format("penstock").option("table", "jobs").schema(narrow)
    return open_jobs(reader.option("state", "ready,waiting,running").load(), time.time())


def keep_open_jobs(spark: SparkSession, writing: LakeWriter) -> None:
    """Have the lake know the open jobs as they are now, in place of what it knew."""
    before = writing.manifest().table(TABLE).files
    found = open_now(spark).withColumn("day", utc_day(col("at"))).coalesce(1)
    with writing.staging() as place:
        files = stage(found, place)
        if files or before:
            writing.publish(TABLE, files, replaces=before)


def kept_open_jobs(spark: SparkSession, lake: Lake) -> DataFrame | None:
    """The open jobs of the last run; None if there were none, or nobody asked."""
    files = [spark_path(path) for path in lake.files(TABLE)]
    return spark.read.parquet(*files) if files else None
