"""Schedule delay: seconds from a schedule's slot to the start of its job, and skipped slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def schedule_delay(events: DataFrame, attempts: DataFrame) -> DataFrame:
    """Per schedule: slots enqueued and skipped, and the delay from slot to first start."""
    decisions = events.where((F.col("kind") == "schedule") & _field("slot").isNotNull()).select(
        "shard",
        "job",
        _field("schedule").alias("schedule"),
        _field("says").alias("says"),
        F.to_timestamp(_field("slot")).alias("slot"),
        F.coalesce(_field("slots").cast("bigint"), F.lit(1)).alias("slots"),
    )
    starts = (
        attempts.where(F.col("started_at").isNotNull())
        .groupBy("shard", "job")
        .agg(F.min("started_at").alias("started_at"))
    )
    late = (F.unix_micros("started_at") - F.unix_micros("slot")) / 1_000_000
    enqueued = F.col("says").startswith("enqueued")
    return (
        decisions.join(starts, ["shard", "job"], "left")
        .withColumn("late", F.when(enqueued, late))
        .groupBy("schedule")
        .agg(
            F.sum(F.when(enqueued, F.lit(1)).otherwise(F.lit(0))).alias("enqueued"),
            F.sum(F.when(enqueued, F.col("slots") - 1).otherwise(F.col("slots"))).alias("skipped"),
            F.percentile_approx("late", 0.5, 10_000).alias("late_p50"),
            F.percentile_approx("late", 0.99, 10_000).alias("late_p99"),
            F.max("late").alias("late_longest"),
        )
    )


def _field(name: str) -> Column:
    return F.get_json_object(F.col("data"), f"$.{name}")
