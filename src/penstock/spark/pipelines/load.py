"""Load: how much ran, how long it waited and how long it took, by whatever columns one likes.

Counts are exact. Percentiles are of durations sorted into steps of 0.5 %, each step standing for
the longest in it: so far too long at most, and exact where a step has one duration. Counting steps
is plain hashing.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    count,
    explode,
    floor,
    greatest,
    lit,
    ln,
    percentile,
)
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import sum as total

from penstock.spark.pipelines.clean import bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_STEP = log(1.005)
_SHORTEST = 1e-6  # the store's clock tells no less apart
_COUNTS = ("attempts", "jobs", "succeeded", "failed", "cancelled", "retries", "lapses")


def load(attempts: DataFrame, *by: str, every: int | None = None) -> DataFrame:
    """Clean attempts, counted and timed by these columns and, if given, every so many seconds.

    A row's moment is when the attempt ended: `at` is the start of the stretch that it fell in.
    """
    names = list(by)
    if every is not None:
        attempts = attempts.withColumn("at", bucket(col("ended_at"), every))
        names.append("at")
    waits = (
        _steps(attempts, names, "wait")
        .groupBy(*names)
        .agg(
            *(coalesce(total(name), lit(0)).alias(name) for name in _COUNTS),
            coalesce(total("busy"), lit(0.0)).alias("busy"),
            *_ranks("wait"),
        )
    )
    runs = _steps(attempts, names, "run").groupBy(*names).agg(*_ranks("run"))
    together = waits.alias("waits").join(runs.alias("runs"), _same(names), "inner")
    return together.select(
        *(f"waits.{name}" for name in (*names, *_COUNTS, "busy")),
        "wait_longest",
        "run_longest",
        *(
            col(f"{what}s_at")[at].alias(f"{what}_{rank}")
            for what in ("wait", "run")
            for at, rank in enumerate(RANKS)
        ),
    )


def by_tag(attempts: DataFrame) -> DataFrame:
    """Clean attempts, a row for each tag of each, as `tag` and `value`."""
    tags = explode("tags").alias("tag", "value")
    return attempts.select("*", tags)


def _steps(attempts: DataFrame, names: list[str], what: str) -> DataFrame:
    """How many fell into each step of a duration; those without one in a step of their own."""
    step = floor(ln(greatest(col(what), lit(_SHORTEST))) / lit(_STEP))
    return (
        attempts.withColumn("step", step)
        .groupBy(*names, "step")
        .agg(
            count("*").alias("attempts"),
            _number(col("finished"), "jobs"),
            _number(col("state") == "succeeded", "succeeded"),
            _number(col("state") == "failed", "failed"),
            _number(col("state") == "cancelled", "cancelled"),
            _number(col("retried"), "retries"),
            _number(col("lapsed"), "lapses"),
            total("run").alias("busy"),
            maximum(what).alias("longest"),
        )
    )


def _ranks(what: str) -> tuple[Column, Column]:
    ranks = array(*(lit(rank) for rank in RANKS.values()))
    return (
        percentile("longest", ranks, col("attempts")).alias(f"{what}s_at"),
        maximum("longest").alias(f"{what}_longest"),
    )


def _number(condition: Column, name: str) -> Column:
    return coalesce(total(condition.cast("bigint")), lit(0)).alias(name)


def _same(names: list[str]) -> Column:
    same = lit(True)
    for name in names:
        same &= col(f"waits.{name}").eqNullSafe(col(f"runs.{name}"))
    return same
