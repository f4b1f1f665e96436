"""Settings of a session under which the pipeline is right and quick; put back afterwards.

They are changed while it runs and not made part of the session: it may be somebody else's.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Groups whose percentiles are kept in memory at a time; beyond that rows are sorted first, which is
# slower for few groups and the only way for very many. Spark's own limit is 128.
_GROUPS = 10_000


@contextmanager
def tuned(spark: SparkSession) -> Generator[None]:
    """The session with the pipeline's settings, for as long as this lasts."""
    wanted = {
        # Times of ours are counted in UTC.
        "spark.sql.session.timeZone": "UTC",
        # Partitions of a few rows each would only cost.
        "spark.sql.shuffle.partitions": str(2 * spark.sparkContext.defaultParallelism),
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(_GROUPS),
    }
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
