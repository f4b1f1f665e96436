"""Forecast: what the coming seven days need, per queue, if it goes on as it did.

A straight line through the whole days of history (level, if there are fewer than seven); the peak
is the busiest hour of the last seven days, grown as the line grows. No season is guessed from a
week of data, and the page says how many days stand behind a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    avg,
    ceil,
    coalesce,
    col,
    count,
    explode,
    greatest,
    lit,
    regr_intercept,
    regr_slope,
    sequence,
    unix_seconds,
    when,
)
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.datasets.clean_attempts import DAY, HOUR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USE = 0.7  # of a slot: above, whoever arrives waits for long
_WEEK = 7


def forecast(hours: DataFrame) -> DataFrame:
    """From `load(…, "queue", every=HOUR)`: jobs and slots that the next seven days need."""
    numbered = hours.select(
        "queue", "attempts", "busy", (unix_seconds("at") / DAY).cast("bigint").alias("day")
    )
    ends = numbered.agg(minimum("day").alias("first"), maximum("day").alias("last"))
    # The last day has only begun; a lone one is all there is.
    whole = greatest(col("last") - 1, col("first"))
    every_day = explode(sequence("first", whole)).alias("day")
    # A day without a job is a day, too.
    grid = numbered.select("queue").distinct().crossJoin(ends.select("last", every_day))
    days = (
        grid.join(numbered, ["queue", "day"], "left")
        .groupBy("queue", "day", "last")
        .agg(
            coalesce(total("attempts"), lit(0)).alias("attempts"),
            coalesce(maximum("busy"), lit(0.0)).alias("peak"),
        )
    )
    ahead = _WEEK / 2 + 0.5  # the middle of the week that begins on the day after the last
    fitted = days.groupBy("queue").agg(
        count("*").alias("days"),
        avg("attempts").alias("daily"),
        regr_slope("attempts", "day").alias("slope"),
        regr_intercept("attempts", "day").alias("intercept"),
        maximum(when(col("day") >= col("last") - _WEEK, col("peak"))).alias("peak"),
        avg(when(col("day") >= col("last") - _WEEK, col("attempts"))).alias("lately"),
        maximum("last").alias("last"),
    )
    line = col("intercept") + col("slope") * (col("last") - 1 + ahead)
    coming = when(col("days") >= _WEEK, greatest(line, lit(0.0))).otherwise(col("daily"))
    growth = coalesce(coming / when(col("lately") > 0, col("lately")), lit(1.0))
    return (
        fitted.withColumn("coming", coming)
        .withColumn("growth", growth)
        .select(
            "queue",
            "days",
            "daily",
            (col("coming") * _WEEK).alias("next_week"),
            "growth",
            (col("peak") / HOUR).alias("peak_at_a_time"),
            greatest(ceil(col("peak") * col("growth") / HOUR / USE), lit(1)).alias("slots"),
        )
    )
