"""Throughput: counts of attempts and jobs, and percentiles of wait and run, by any columns.

Counts are exact. Percentiles come from a histogram with buckets 1 % wide, each represented by the
mean of its durations: within 1 % of the exact value. A histogram is a plain hash aggregation, whose
memory does not grow with the number of rows; wait and run are counted in one pass.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import ENDED, bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_BUCKET_WIDTH = log(1.01)
_SHORTEST = 1e-6  # the resolution of stored times
_TIMED = ("wait", "run")
_COUNTS = ("attempts", "jobs", "succeeded", "failed", "cancelled", "retries", "lapses")


def load(attempts: DataFrame, *by: str, every: int | None = None) -> DataFrame:
    """Aggregate clean attempts by these columns and, with `every`, by intervals of that length.

    `at` is the start of the interval in which the attempts ended.
    """
    names = list(by)
    if every is not None:
        attempts = attempts.withColumn("at", bucket(F.col("ended_at"), every))
        names.append("at")
    # Every attempt is in one bucket of each histogram: counts are summed over that of waits alone.
    counted = (F.when(F.col("of_waits"), F.col(name)) for name in (*_COUNTS, "run"))
    found = (
        _histograms(attempts, names)
        .groupBy(*names)
        .agg(
            *(
                F.coalesce(F.sum(each), F.lit(0)).alias(name)
                for each, name in zip(counted, (*_COUNTS, "busy"), strict=True)
            ),
            *(F.max(f"{what}_longest").alias(f"{what}_longest") for what in _TIMED),
            _ranks("wait", F.col("of_waits")),
            _ranks("run", ~F.col("of_waits")),
        )
    )
    return found.select(
        *names,
        *_COUNTS,
        F.col("busy").cast("double").alias("busy"),
        *(f"{what}_longest" for what in _TIMED),
        *(
            F.col(f"{what}s_at")[at].alias(f"{what}_{rank}")
            for what in _TIMED
            for at, rank in enumerate(RANKS)
        ),
    )


def by_tag(attempts: DataFrame) -> DataFrame:
    """One row per attempt and tag, with the columns `tag` and `value`."""
    return attempts.select("*", F.explode("tags").alias("tag", "value"))


def _histograms(attempts: DataFrame, names: list[str]) -> DataFrame:
    """The histograms of wait and of run; attempts without the duration are in a null bucket."""
    for what in _TIMED:
        number = F.floor(F.ln(F.greatest(F.col(what), F.lit(_SHORTEST))) / F.lit(_BUCKET_WIDTH))
        attempts = attempts.withColumn(f"{what}_bucket", number.cast("int"))
    by = [F.col(name) for name in names]
    buckets = [F.col(f"{what}_bucket") for what in _TIMED]
    return attempts.groupingSets([[*by, bucket] for bucket in buckets], *by, *buckets).agg(
        (F.grouping("wait_bucket") == 0).alias("of_waits"),
        F.count("*").alias("attempts"),
        F.count_if("finished").alias("jobs"),
        *(F.count_if(F.col("state") == state).alias(state) for state in ENDED),
        F.count_if("retried").alias("retries"),
        F.count_if("lapsed").alias("lapses"),
        *(F.sum(what).alias(what) for what in _TIMED),
        *(F.max(what).alias(f"{what}_longest") for what in _TIMED),
    )


def _ranks(what: str, counts: Column) -> Column:
    ranks = F.array(*(F.lit(rank) for rank in RANKS.values()))
    mean = F.when(counts, F.col(what) / F.col("attempts"))
    return F.percentile(mean, ranks, F.col("attempts")).alias(f"{what}s_at")
