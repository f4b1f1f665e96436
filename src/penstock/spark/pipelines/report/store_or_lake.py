"""Whether a report reads the store or the lake: the store while its history is small and complete.

Measured: below a million attempts the store is faster than the files. What was pruned from the
store is only in the lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.slice import Selection
from penstock.spark.pipelines.datasets.open_jobs import kept_open_jobs, open_now
from penstock.spark.pipelines.lake.raw_tables import RAW, read_raw
from penstock.spark.pipelines.report.queries import Frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import Lake
    from penstock.spark.pipelines.lake.manifest import Manifest

SMALL = 1_000_000
_ATTEMPTS = Selection(table="attempts")


def from_store(broker: Broker, manifest: Manifest | None) -> bool:
    """Whether to read the store: it has all that the lake has, and not too much."""
    if manifest is None:
        return True
    if sum(file.rows for file in manifest.table("attempts").files) >= SMALL:
        return False
    store = broker.reach(_ATTEMPTS, at_most=1, patience=0).store
    files = [file for table in manifest.tables.values() for file in table.files if file.last]
    if any(file.shard != store for file in files):
        return False
    first = min((file.first for file in files), default=None)
    # The store's last row up to the lake's first position is that very row, unless it was pruned.
    return first is None or first == broker.reach(_ATTEMPTS, patience=0, until=first).position


def store_frames(spark: SparkSession) -> Frames:
    """The raw tables and the open jobs of the session's store."""

    def read(table: str) -> Any:
        return spark.read.format("penstock").option("table", table).load()

    attempts, events, gauges = (read(table) for table in RAW)
    return Frames(attempts, events, gauges, open_now(spark))


def lake_frames(spark: SparkSession, lake: Lake) -> Frames:
    """The raw tables of the lake, and the open jobs of its last run."""
    attempts, events, gauges = (read_raw(spark, lake, table) for table in RAW)
    return Frames(attempts, events, gauges, kept_open_jobs(spark, lake))
