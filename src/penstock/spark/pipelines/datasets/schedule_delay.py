"""Punctuality: how late schedules were decided and their jobs begun, and what was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    coalesce,
    col,
    get_json_object,
    lit,
    percentile_approx,
    to_timestamp,
    unix_micros,
    when,
)
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def punctuality(events: DataFrame, attempts: DataFrame) -> DataFrame:
    """Per schedule: slots enqueued and skipped, and seconds from slot to first start."""
    decisions = events.where((col("kind") == "schedule") & _said("slot").isNotNull()).select(
        "shard",
        "job",
        _said("schedule").alias("schedule"),
        _said("says").alias("says"),
        to_timestamp(_said("slot")).alias("slot"),
        coalesce(_said("slots").cast("bigint"), lit(1)).alias("slots"),
    )
    starts = (
        attempts.where(col("started_at").isNotNull())
        .groupBy("shard", "job")
        .agg(minimum("started_at").alias("started_at"))
    )
    late = (unix_micros("started_at") - unix_micros("slot")) / 1_000_000
    enqueued = col("says").startswith("enqueued")
    return (
        decisions.join(starts, ["shard", "job"], "left")
        .withColumn("late", when(enqueued, late))
        .groupBy("schedule")
        .agg(
            total(when(enqueued, lit(1)).otherwise(lit(0))).alias("enqueued"),
            total(when(enqueued, col("slots") - 1).otherwise(col("slots"))).alias("skipped"),
            percentile_approx("late", 0.5, 10_000).alias("late_p50"),
            percentile_approx("late", 0.99, 10_000).alias("late_p99"),
            maximum("late").alias("late_longest"),
        )
    )


def _said(name: str) -> Column:
    return get_json_object(col("data"), f"$.{name}")
