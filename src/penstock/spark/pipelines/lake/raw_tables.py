"""Raw: history as the lake keeps it, a table each for attempts, events and gauges.

Columns are only ever added. A file that lacks one reads as null there, and a column that a newer
Penstock wrote is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.functions import col, date_add, floor, lit, unix_micros

from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.write_parquet import spark_path
from penstock.spark.source.tables import TABLES, TIMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RawTable = Literal["attempts", "events", "gauges"]
RAW: tuple[RawTable, ...] = ("attempts", "events", "gauges")
_A_DAY = 86_400_000_000  # microseconds


def read_raw(
    spark: SparkSession,
    lake: Lake,
    table: str,
    days: Iterable[str] | None = None,
    *,
    paths: Iterable[str] | None = None,
) -> DataFrame:
    """A table of the lake, with the column `day`; of these days or files, or all of it."""
    schema = f"{TABLES[table]}, day date"
    files = lake.files(table, days) if paths is None else [lake.folder / each for each in paths]
    for file in files if paths is not None else ():
        lake.refuse_links(file)
    if not files:
        no_rows: list[Any] = []
        made: Any = spark
        return made.createDataFrame(no_rows, schema)
    base = spark_path(lake.folder / table)
    reader = spark.read.schema(schema).option("basePath", base)
    return reader.parquet(*(spark_path(path) for path in files))


def day_of(table: str) -> Column:
    """The day in UTC on which a row of this table happened, whatever the session's time zone."""
    return utc_day(col(TIMES[table]))


def utc_day(moment: Column) -> Column:
    # Not to_date, which answers in the time zone of the session.
    return date_add(lit("1970-01-01").cast("date"), floor(unix_micros(moment) / _A_DAY).cast("int"))
