"""Forecast: jobs and slots that each queue needs in the next seven days.

A linear regression over the whole days of history, or their mean if there are fewer than seven. The
peak is the busiest hour of the last seven days, scaled by the same growth. No seasonality; the page
shows how many days a number is based on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import DAY, HOUR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USE = 0.7  # of a slot; above that, queueing delay grows steeply
_WEEK = 7


def forecast(hours: DataFrame) -> DataFrame:
    """From `load(…, "queue", every=HOUR)`: jobs and slots that the next seven days need."""
    numbered = hours.select(
        "queue", "attempts", "busy", (F.unix_seconds("at") / DAY).cast("bigint").alias("day")
    )
    ends = numbered.agg(F.min("day").alias("first"), F.max("day").alias("last"))
    # The last day is incomplete, and left out unless it is the only one.
    whole = F.greatest(F.col("last") - 1, F.col("first"))
    every_day = F.explode(F.sequence("first", whole)).alias("day")
    # Days without a job count as zero.
    grid = numbered.select("queue").distinct().crossJoin(ends.select("last", every_day))
    days = (
        grid.join(numbered, ["queue", "day"], "left")
        .groupBy("queue", "day", "last")
        .agg(
            F.coalesce(F.sum("attempts"), F.lit(0)).alias("attempts"),
            F.coalesce(F.max("busy"), F.lit(0.0)).alias("peak"),
        )
    )
    ahead = _WEEK / 2 + 0.5  # days from the last whole day to the middle of the next week
    fitted = days.groupBy("queue").agg(
        F.count("*").alias("days"),
        F.avg("attempts").alias("daily"),
        F.regr_slope("attempts", "day").alias("slope"),
        F.regr_intercept("attempts", "day").alias("intercept"),
        F.max(F.when(F.col("day") >= F.col("last") - _WEEK, F.col("peak"))).alias("peak"),
        F.avg(F.when(F.col("day") >= F.col("last") - _WEEK, F.col("attempts"))).alias("lately"),
        F.max("last").alias("last"),
    )
    line = F.col("intercept") + F.col("slope") * (F.col("last") - 1 + ahead)
    coming = F.when(F.col("days") >= _WEEK, F.greatest(line, F.lit(0.0))).otherwise(F.col("daily"))
    growth = F.coalesce(coming / F.when(F.col("lately") > 0, F.col("lately")), F.lit(1.0))
    return (
        fitted.withColumn("coming", coming)
        .withColumn("growth", growth)
        .select(
            "queue",
            "days",
            "daily",
            (F.col("coming") * _WEEK).alias("next_week"),
            "growth",
            (F.col("peak") / HOUR).alias("peak_at_a_time"),
            F.greatest(F.ceil(F.col("peak") * F.col("growth") / HOUR / USE), F.lit(1)).alias(
                "slots"
            ),
        )
    )
