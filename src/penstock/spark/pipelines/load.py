"""Load: how much ran, how long it waited and how long it took, by whatever columns one likes.

Counts are exact; percentiles are within a ten-thousandth of the rank that they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import coalesce, col, count, explode, lit, percentile_approx
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.clean import bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_ACCURACY = 10_000


def load(attempts: DataFrame, *by: str, every: int | None = None) -> DataFrame:
    """Clean attempts, counted and timed by these columns and, if given, every so many seconds.

    A row's moment is when the attempt ended: `at` is the start of the stretch that it fell in.
    """
    names = list(by)
    if every is not None:
        attempts = attempts.withColumn("at", bucket(col("ended_at"), every))
        names.append("at")
    grouped = attempts.groupBy(*names).agg(
        count("*").alias("attempts"),
        _number(col("finished"), "jobs"),
        _number(col("state") == "succeeded", "succeeded"),
        _number(col("state") == "failed", "failed"),
        _number(col("state") == "cancelled", "cancelled"),
        _number(col("retried"), "retries"),
        _number(col("lapsed"), "lapses"),
        coalesce(total("run"), lit(0.0)).alias("busy"),
        maximum("wait").alias("wait_longest"),
        maximum("run").alias("run_longest"),
        _ranks("wait"),
        _ranks("run"),
    )
    kept = [name for name in grouped.columns if name not in {"waits", "runs"}]
    return grouped.select(
        *kept,
        *(
            col(f"{what}s")[at].alias(f"{what}_{rank}")
            for what in ("wait", "run")
            for at, rank in enumerate(RANKS)
        ),
    )


def by_tag(attempts: DataFrame) -> DataFrame:
    """Clean attempts, a row for each tag of each, as `tag` and `value`."""
    tags = explode("tags").alias("tag", "value")
    return attempts.select("*", tags)


def _number(condition: Column, name: str) -> Column:
    return coalesce(total(condition.cast("bigint")), lit(0)).alias(name)


def _ranks(what: str) -> Column:
    return percentile_approx(what, list(RANKS.values()), _ACCURACY).alias(f"{what}s")
