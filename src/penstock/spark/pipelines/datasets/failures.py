"""Failures: what went wrong, how often, since when, with one job to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col, count, max_by
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def failures(attempts: DataFrame, *by: str) -> DataFrame:
    """Bad attempts by queue, task, reason and signature. `ended`: those that were a job's last.

    `by` are further columns of clean attempts.
    """
    return (
        attempts.where("bad")
        .groupBy(*by, "queue", "task", "reason", "signature")
        .agg(
            count("*").alias("attempts"),
            total((col("state") == "failed").cast("bigint")).alias("ended"),
            minimum("ended_at").alias("first_at"),
            maximum("ended_at").alias("last_at"),
            max_by("job", "position").alias("example"),
        )
    )
