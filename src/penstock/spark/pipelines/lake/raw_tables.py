"""The raw tables of a lake: attempts, events and gauges, as the store had them.

Columns are only ever added. A column that an older file lacks reads as null; one that a newer
Penstock wrote is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.write_parquet import spark_path
from penstock.spark.source.tables import TABLES, TIMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RawTable = Literal["attempts", "events", "gauges"]
RAW: tuple[RawTable, ...] = ("attempts", "events", "gauges")
_DAY_MICROSECONDS = 86_400_000_000


def read_raw(
    spark: SparkSession,
    lake: Lake,
    table: str,
    days: Iterable[str] | None = None,
    *,
    paths: Iterable[str] | None = None,
) -> DataFrame:
    """A table of the lake with the column `day`: these days, these files, or all of it."""
    schema = f"{TABLES[table]}, day date"
    files = lake.files(table, days) if paths is None else [lake.folder / path for path in paths]
    for file in files if paths is not None else ():
        lake.refuse_links(file)
    if not files:
        untyped: Any = spark
        return untyped.createDataFrame([], schema)
    base = spark_path(lake.folder / table)
    reader = spark.read.schema(schema).option("basePath", base)
    return reader.parquet(*(spark_path(path) for path in files))


def day_of(table: str) -> Column:
    """The UTC day of a row of this table."""
    return utc_day(F.col(TIMES[table]))


def utc_day(moment: Column) -> Column:
    # Not to_date, which depends on the session's time zone.
    return F.date_add(
        F.lit("1970-01-01").cast("date"),
        F.floor(F.unix_micros(moment) / _DAY_MICROSECONDS).cast("int"),
    )
