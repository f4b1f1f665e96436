"""Failures: attempts that went wrong, grouped by error, with an example job for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def failures(attempts: DataFrame, *by: str) -> DataFrame:
    """Bad attempts by queue, task, reason and signature, and by the further columns `by`.

    `ended` counts those that were their job's last attempt.
    """
    return (
        attempts.where("bad")
        .groupBy(*by, "queue", "task", "reason", "signature")
        .agg(
            F.count("*").alias("attempts"),
            F.sum((F.col("state") == "failed").cast("bigint")).alias("ended"),
            F.min("ended_at").alias("first_at"),
            F.max("ended_at").alias("last_at"),
            F.max_by("job", "position").alias("example"),
        )
    )
