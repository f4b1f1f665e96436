"""Open jobs: how many had not ended at one moment, by queue and state.

A run of the pipeline stores them in the lake, so that a report from the lake is of one moment:
history up to the mark, and the jobs that were open then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import ENDED
from penstock.spark.pipelines.lake.raw_tables import utc_day
from penstock.spark.pipelines.lake.write_parquet import spark_path, stage
from penstock.spark.source.tables import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.lake.lake import Lake, LakeWriter

TABLE = "open_jobs"
_NEEDED = ("queue", "state", "enqueued_at", "run_at")


def open_jobs(stored_jobs: DataFrame, now: float) -> DataFrame:
    """Counts of ready, scheduled, waiting and running jobs per queue, from the table `jobs`.

    `oldest` is for how many seconds the oldest due job has waited.
    """
    at = F.lit(round(now * 1_000_000)).cast("bigint")
    due_at = F.unix_micros(F.greatest("run_at", "enqueued_at"))
    ready = F.col("state") == "ready"
    due = ready & (due_at <= at)
    return (
        stored_jobs.where(~F.col("state").isin(*ENDED))
        .groupBy("queue")
        .agg(
            F.count_if(due).alias("ready"),
            F.count_if(ready & (due_at > at)).alias("scheduled"),
            F.count_if(F.col("state") == "waiting").alias("waiting"),
            F.count_if(F.col("state") == "running").alias("running"),
            ((at - F.min(F.when(due, due_at))) / 1_000_000).alias("oldest"),
        )
        .withColumn("at", F.timestamp_micros(at))
    )


def open_now(spark: SparkSession) -> DataFrame:
    """The open jobs of the session's store at this moment."""
    kinds = columns_of("jobs")
    # Only these columns: the body is most of a job's bytes, and the store then need not send it.
    schema = ", ".join(f"{name} {kinds[name]}" for name in _NEEDED)
    reader = spark.read.format("penstock").option("table", "jobs").schema(schema)
    return open_jobs(reader.option("state", "ready,waiting,running").load(), time.time())


def keep_open_jobs(spark: SparkSession, writer: LakeWriter) -> None:
    """Replace the open jobs that the lake has by those of now."""
    before = writer.manifest().table(TABLE).files
    rows = open_now(spark).withColumn("day", utc_day(F.col("at"))).coalesce(1)
    with writer.staging() as folder:
        files = stage(rows, folder)
        if files or before:
            writer.publish(TABLE, files, replaces=before)


def kept_open_jobs(spark: SparkSession, lake: Lake) -> DataFrame | None:
    """The open jobs as of the last run; None if there were none."""
    files = [spark_path(path) for path in lake.files(TABLE)]
    return spark.read.parquet(*files) if files else None
