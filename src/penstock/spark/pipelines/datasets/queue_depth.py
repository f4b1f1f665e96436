"""Depth: how many jobs stood where, and how long the oldest had waited, over time.

From the gauges, which are taken every minute: an outage shows even when nothing ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.datasets.clean_attempts import bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACES = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")


def depth(gauges: DataFrame, every: int) -> DataFrame:
    """The most that stood in each place within every so many seconds, by queue."""
    moments = gauges.groupBy("queue", "at").agg(
        # A queue may be on several shards, which all say what they hold.
        *(total(place).alias(place) for place in PLACES),
        maximum("oldest").alias("oldest"),
    )
    return (
        moments.withColumn("at", bucket(col("at"), every))
        .groupBy("queue", "at")
        .agg(*(maximum(name).alias(name) for name in (*PLACES, "oldest")))
    )
