"""Spark settings that the pipeline needs, changed while it runs and restored afterwards.

They are not part of the session's configuration: the session may be somebody else's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.spark.connect import cores, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Groups whose percentiles are held in memory at a time, instead of Spark's 128. Beyond that rows
# are sorted first, which is slower for few groups and the only way for very many.
_GROUPS = 10_000


@contextmanager
def pipeline_settings(spark: SparkSession) -> Generator[None]:
    """Run the pipeline's queries with UTC, few shuffle partitions and hash aggregation."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # Spark's default of 200 makes partitions of a few rows each.
        "spark.sql.shuffle.partitions": str(2 * cores(spark)),
    }
    if not is_connect(spark):  # a serverless one allows few settings
        settings["spark.sql.objectHashAggregate.sortBased.fallbackThreshold"] = str(_GROUPS)
    with changed_settings(spark, settings):
        yield


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Generator[None]:
    """Change settings of a session for as long as this lasts."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
