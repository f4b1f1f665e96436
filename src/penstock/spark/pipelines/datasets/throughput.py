"""Load: how much ran, how long it waited and how long it took, by whatever columns one likes.

Counts are exact. Percentiles are of durations sorted into steps of 1 %, each step standing for the
mean of what is in it: within 1 % of the exact ones, and exact where a step has one duration. To
count steps is plain hashing, which is quick and needs little room however many rows there are; both
durations are counted in one pass.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    count,
    count_if,
    explode,
    floor,
    greatest,
    grouping,
    lit,
    ln,
    percentile,
    when,
)
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.datasets.clean_attempts import ENDED, bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_STEP = log(1.01)
_SHORTEST = 1e-6  # the store's clock tells no less apart
_TIMED = ("wait", "run")
_COUNTS = ("attempts", "jobs", "succeeded", "failed", "cancelled", "retries", "lapses")


def load(attempts: DataFrame, *by: str, every: int | None = None) -> DataFrame:
    """Clean attempts, counted and timed by these columns and, if given, every so many seconds.

    A row's moment is when the attempt ended: `at` is the start of the stretch that it fell in.
    """
    names = list(by)
    if every is not None:
        attempts = attempts.withColumn("at", bucket(col("ended_at"), every))
        names.append("at")
    # Every attempt is in one step of each kind: counts are taken from the steps of waits alone.
    counted = (when(col("of_waits"), col(name)) for name in (*_COUNTS, "run"))
    found = (
        _steps(attempts, names)
        .groupBy(*names)
        .agg(
            *(
                coalesce(total(each), lit(0)).alias(name)
                for each, name in zip(counted, (*_COUNTS, "busy"), strict=True)
            ),
            *(maximum(f"{what}_longest").alias(f"{what}_longest") for what in _TIMED),
            _ranks("wait", col("of_waits")),
            _ranks("run", ~col("of_waits")),
        )
    )
    return found.select(
        *names,
        *_COUNTS,
        col("busy").cast("double").alias("busy"),
        *(f"{what}_longest" for what in _TIMED),
        *(
            col(f"{what}s_at")[at].alias(f"{what}_{rank}")
            for what in _TIMED
            for at, rank in enumerate(RANKS)
        ),
    )


def by_tag(attempts: DataFrame) -> DataFrame:
    """Clean attempts, a row for each tag of each, as `tag` and `value`."""
    tags = explode("tags").alias("tag", "value")
    return attempts.select("*", tags)


def _steps(attempts: DataFrame, names: list[str]) -> DataFrame:
    """What fell into each step of waits, and into each of runs; what has none, into a null one."""
    for what in _TIMED:
        step = floor(ln(greatest(col(what), lit(_SHORTEST))) / lit(_STEP))
        attempts = attempts.withColumn(f"{what}_step", step.cast("int"))
    by, steps = [col(name) for name in names], [col(f"{what}_step") for what in _TIMED]
    return attempts.groupingSets([[*by, step] for step in steps], *by, *steps).agg(
        (grouping("wait_step") == 0).alias("of_waits"),
        count("*").alias("attempts"),
        count_if("finished").alias("jobs"),
        *(count_if(col("state") == state).alias(state) for state in ENDED),
        count_if("retried").alias("retries"),
        count_if("lapsed").alias("lapses"),
        *(total(what).alias(what) for what in _TIMED),
        *(maximum(what).alias(f"{what}_longest") for what in _TIMED),
    )


def _ranks(what: str, counts: Column) -> Column:
    ranks = array(*(lit(rank) for rank in RANKS.values()))
    mean = when(counts, col(what) / col("attempts"))
    return percentile(mean, ranks, col("attempts")).alias(f"{what}s_at")
