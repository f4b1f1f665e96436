"""The check of the Spark demo: the rows of the frame against their jobs in the lake.

It joins them by the order number in each job's arguments, and uses no counter of workers or store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.functions import col, count, expr, get_json_object, lit, when
from pyspark.sql.functions import sum as total

from penstock.job import ENDED
from penstock.spark.pipelines.lake.raw_tables import read_raw
from penstock.tools.demo.spark.tasks import COMES_TO, price

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.pipelines.lake.lake import Lake


class FrameProof(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of the frame."""

    rows: int
    once: int  # rows whose job ended once, with the right result
    lost: int  # rows without a job that ended
    twice: int  # rows that ended more than once
    strange: int  # jobs that ended and have no row
    wrong: int  # rows that ended once, with a wrong result
    standing: int  # jobs in the store that have not succeeded
    retried: int  # attempts that failed and were tried again
    cents: int  # the sum of all orders, by the jobs
    cents_of_days: int  # the same, by the backfill
    ended_by: Mapping[str, int]  # jobs that ended, by worker

    @property
    def holds(self) -> bool:
        bad = self.lost + self.twice + self.strange + self.wrong + self.standing
        return bad == 0 and self.once == self.rows > 0 and self.cents == self.cents_of_days


def prove(
    spark: SparkSession, frame: DataFrame, lake: Lake, standing: int, cents_of_days: int
) -> FrameProof:
    """Count what became of the rows."""
    attempts = read_raw(spark, lake, "attempts").where(col("task") == price.name)
    has_ended = col("state").isin([str(state) for state in ENDED])
    rows = frame.select(
        "order",
        lit(1).alias("rows"),
        lit(0).alias("ends"),
        expr(COMES_TO).alias("due"),
        lit(None).cast("bigint").alias("cents"),
    )
    ended = attempts.where(has_ended).select(
        get_json_object("arguments", "$.order").cast("int").alias("order"),
        lit(0).alias("rows"),
        lit(1).alias("ends"),
        lit(0).alias("due"),
        col("result").cast("bigint").alias("cents"),
    )
    sums = (total(name).alias(name) for name in ("rows", "ends", "due", "cents"))
    by_order = rows.unionByName(ended).groupBy("order").agg(*sums)
    right = (col("rows") == 1) & (col("ends") == 1) & col("due").eqNullSafe(col("cents"))
    [counts] = by_order.agg(
        _number(col("rows") == 1, "rows"),
        _number(right, "once"),
        _number((col("rows") == 1) & (col("ends") == 0), "lost"),
        _number(col("ends") > 1, "twice"),
        _number(col("rows") == 0, "strange"),
        _number((col("rows") == 1) & (col("ends") == 1) & ~right, "wrong"),
        total("cents").alias("cents"),
    ).collect()
    retried, ended_by = 0, Counter[str]()
    for row in attempts.groupBy("worker", "state", "reason").count().collect():
        if row["state"] in ENDED:
            ended_by[row["worker"]] += row["count"]
        elif row["reason"] == "error":
            retried += row["count"]
    return FrameProof(
        **{**counts.asDict(), "cents": counts["cents"] or 0},
        standing=standing,
        retried=retried,
        cents_of_days=cents_of_days,
        ended_by=ended_by,
    )


def _number(condition: Column, name: str) -> Column:
    return count(when(condition, 1)).alias(name)
