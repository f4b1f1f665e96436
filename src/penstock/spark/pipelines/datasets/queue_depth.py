"""Queue depth over time: jobs by state, and how long the oldest had waited.

Made from gauges, which workers write every minute: a backlog shows even while no job ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATES = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")


def depth(gauges: DataFrame, every: int) -> DataFrame:
    """The highest count of each state per queue and interval of so many seconds."""
    gauged = gauges.groupBy("queue", "at").agg(
        # A queue may be on several shards: their counts add up.
        *(F.sum(state).alias(state) for state in STATES),
        F.max("oldest").alias("oldest"),
    )
    return (
        gauged.withColumn("at", bucket(F.col("at"), every))
        .groupBy("queue", "at")
        .agg(*(F.max(name).alias(name) for name in (*STATES, "oldest")))
    )
