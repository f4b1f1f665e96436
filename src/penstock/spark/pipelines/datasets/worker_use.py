"""Worker use: how busy each worker was, hour by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    col,
    count,
    explode,
    greatest,
    least,
    lit,
    sequence,
    timestamp_seconds,
    unix_micros,
    unix_seconds,
)
from pyspark.sql.functions import sum as total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def worker_use(attempts: DataFrame, every: int) -> DataFrame:
    """Per worker and stretch of so many seconds: `busy` seconds, and how many ran at a time.

    An attempt counts in every stretch that it ran in, with what it ran there.
    """
    start, end = (unix_seconds(name) for name in ("started_at", "ended_at"))
    first, last = (moment - moment % every for moment in (start, end))
    pieces = attempts.where(
        col("started_at").isNotNull() & (col("ended_at") >= col("started_at"))
    ).select(
        "worker",
        "started_at",
        "ended_at",
        explode(sequence(first, last, lit(every).cast("bigint"))).alias("stretch"),
    )
    began = greatest(unix_micros("started_at"), col("stretch") * 1_000_000)
    ended = least(unix_micros("ended_at"), (col("stretch") + every) * 1_000_000)
    return (
        pieces.withColumn("spent", (ended - began) / 1_000_000)
        .groupBy("worker", "stretch")
        .agg(count("*").alias("attempts"), total("spent").alias("busy"))
        .select(
            "worker",
            timestamp_seconds("stretch").alias("at"),
            "attempts",
            "busy",
            (col("busy") / every).alias("at_a_time"),
        )
    )
