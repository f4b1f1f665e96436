"""Worker use: how busy each worker was, hour by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def worker_use(attempts: DataFrame, every: int) -> DataFrame:
    """Per worker and interval of so many seconds: `busy` seconds, and jobs `at_a_time`.

    An attempt that spans intervals counts in each with the seconds that fall into it.
    """
    start, end = (F.unix_seconds(name) for name in ("started_at", "ended_at"))
    first, last = (moment - moment % every for moment in (start, end))
    pieces = attempts.where(
        F.col("started_at").isNotNull() & (F.col("ended_at") >= F.col("started_at"))
    ).select(
        "worker",
        "started_at",
        "ended_at",
        F.explode(F.sequence(first, last, F.lit(every).cast("bigint"))).alias("interval"),
    )
    began = F.greatest(F.unix_micros("started_at"), F.col("interval") * 1_000_000)
    ended = F.least(F.unix_micros("ended_at"), (F.col("interval") + every) * 1_000_000)
    return (
        pieces.withColumn("spent", (ended - began) / 1_000_000)
        .groupBy("worker", "interval")
        .agg(F.count("*").alias("attempts"), F.sum("spent").alias("busy"))
        .select(
            "worker",
            F.timestamp_seconds("interval").alias("at"),
            "attempts",
            "busy",
            (F.col("busy") / every).alias("at_a_time"),
        )
    )
