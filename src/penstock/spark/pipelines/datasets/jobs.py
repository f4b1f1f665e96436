"""Jobs: one row per job that history or the store knows, also those that are still open.

What the store says of an open job is newer than its last attempt; what has ended is as the last
attempt left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    coalesce,
    col,
    count,
    lit,
    max_by,
    min_by,
    struct,
    when,
)
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.datasets.clean_attempts import ENDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST = ("queue", "task", "version", "state", "reason", "failures", "lapses", "flow", "node")
_ALSO = ("enqueued_at", "started_at", "ended_at")


def jobs(attempts: DataFrame, standing: DataFrame | None = None) -> DataFrame:
    """One row per job, from clean attempts and, if given, the jobs that stand in the store."""
    last = max_by(struct(*_LAST), struct("attempt", "position"))
    known = (
        attempts.groupBy("shard", "job")
        .agg(
            last.alias("last"),
            count("*").alias("attempts"),
            minimum("enqueued_at").alias("enqueued_at"),
            minimum("started_at").alias("started_at"),
            maximum("ended_at").alias("ended_at"),
            min_by("wait", when(col("wait").isNotNull(), col("attempt"))).alias("wait"),
            total("run").alias("run"),
        )
        .select("shard", "job", "last.*", *_ALSO, "attempts", "wait", "run")
    )
    if standing is None:
        return known.withColumn("open", ~col("state").isin(*ENDED))
    now = standing.where(~col("state").isin(*ENDED)).select(
        "shard", col("id").alias("job"), *(col(name).alias(f"now_{name}") for name in _OPEN)
    )
    joined = known.join(now, ["shard", "job"], "full")
    return joined.select(
        "shard",
        "job",
        *(
            coalesce(col(f"now_{name}"), col(name)).alias(name) if name in _OPEN else col(name)
            for name in (*_LAST, *_ALSO)
        ),
        coalesce("attempts", lit(0)).alias("attempts"),
        "wait",
        "run",
        coalesce(col("now_state").isNotNull() | ~col("state").isin(*ENDED), lit(False)).alias(
            "open"
        ),
    )


_OPEN = ("queue", "task", "version", "state", "reason", "failures", "lapses", "flow", "enqueued_at")
