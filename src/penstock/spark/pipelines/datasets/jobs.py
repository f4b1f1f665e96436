"""Jobs: one row per job, ended or open, from the history and the store's table `jobs`.

An open job's columns come from the store, which is newer than the last attempt; an ended job's come
from its last attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import ENDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST = ("queue", "task", "version", "state", "reason", "failures", "lapses", "flow", "node")
_TIMES = ("enqueued_at", "started_at", "ended_at")
# What the store knows of an open job.
_OPEN = ("queue", "task", "version", "state", "reason", "failures", "lapses", "flow", "enqueued_at")


def jobs(attempts: DataFrame, stored_jobs: DataFrame | None = None) -> DataFrame:
    """One row per job, from clean attempts and, if given, the store's table `jobs`."""
    last = F.max_by(F.struct(*_LAST), F.struct("attempt", "position"))
    known = (
        attempts.groupBy("shard", "job")
        .agg(
            last.alias("last"),
            F.count("*").alias("attempts"),
            F.min("enqueued_at").alias("enqueued_at"),
            F.min("started_at").alias("started_at"),
            F.max("ended_at").alias("ended_at"),
            F.min_by("wait", F.when(F.col("wait").isNotNull(), F.col("attempt"))).alias("wait"),
            F.sum("run").alias("run"),
        )
        .select("shard", "job", "last.*", *_TIMES, "attempts", "wait", "run")
    )
    if stored_jobs is None:
        return known.withColumn("open", ~F.col("state").isin(*ENDED))
    now = stored_jobs.where(~F.col("state").isin(*ENDED)).select(
        "shard", F.col("id").alias("job"), *(F.col(name).alias(f"now_{name}") for name in _OPEN)
    )
    joined = known.join(now, ["shard", "job"], "full")
    return joined.select(
        "shard",
        "job",
        *(
            F.coalesce(F.col(f"now_{name}"), F.col(name)).alias(name)
            if name in _OPEN
            else F.col(name)
            for name in (*_LAST, *_TIMES)
        ),
        F.coalesce("attempts", F.lit(0)).alias("attempts"),
        "wait",
        "run",
        F.coalesce(
            F.col("now_state").isNotNull() | ~F.col("state").isin(*ENDED), F.lit(False)
        ).alias("open"),
    )
