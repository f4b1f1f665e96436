"""The raw tables of a lake: attempts, events and gauges, as the store had them.

Columns are only ever added. A column that an older file lacks reads as null; one that a newer
Penstock wrote is ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import Refused
from penstock.spark.pipelines.lake.data_files import TableFolder
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.source.tables import TABLES, arrow_schema
from penstock.spark.untyped_arrow import arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RawTable = Literal["attempts", "events", "gauges"]
RAW: tuple[RawTable, ...] = ("attempts", "events", "gauges")


def create_raw_tables(lake: Lake) -> None:
    """Create the tables that are missing; the one with the lake's id last."""
    begun = lake.exists()
    for table in reversed(RAW):
        if begun and lake.find(table) is None:
            raise Refused(
                f"the lake {lake} has lost its table {table}: restore it from a backup, or begin a"
                " new lake"
            )
        lake.create(table, arrow_schema(TABLES[table]))


def read_raw(
    spark: SparkSession, lake: Lake, table: str, days: Collection[str] | None = None
) -> DataFrame:
    """A table of the lake with the column `day`: these days, or all of it."""
    return read_table(spark, lake, table, f"{TABLES[table]}, day date", days)


def read_table(
    spark: SparkSession,
    lake: Lake,
    table: str,
    schema: str,
    days: Collection[str] | None = None,
) -> DataFrame:
    """Columns of a table. Spark reads the files itself, without a jar for Delta, from a folder.

    For an object store it would need a jar as well: there Arrow reads them, on the executors.
    """
    snapshot = lake.table(table)
    files = snapshot.files(days)
    untyped: Any = spark
    if not files:
        return untyped.createDataFrame([], schema)
    place = snapshot.place
    if place.local is not None:
        reader = spark.read.schema(schema).option("basePath", spark_path(place.uri))
        return reader.parquet(*(spark_path(f"{place.uri}/{file.path}") for file in files))
    days_of_files = [(file.path, file.day) for file in files]
    return read_by_arrow(spark, place, days_of_files, schema, arrow_schema(schema))


def read_by_arrow(
    spark: SparkSession,
    place: TableFolder,
    files: Sequence[tuple[str, str | None]],
    schema: Any,
    target: Any,
) -> DataFrame:
    """Files, each with its day where that is a column, by Arrow on the executors.

    A data source of its own for each table: options would show storage keys in the plan.
    """
    source: Any = import_module("pyspark.sql.datasource")

    class Reader(source.DataSourceReader):
        def partitions(self) -> list[Any]:
            return [source.InputPartition(file) for file in files]

        def read(self, partition: Any) -> Iterator[Any]:
            path, day = partition.value
            parquet: Any = import_module("pyarrow.parquet")
            with place.filesystem().open_input_file(path) as stream:
                file = parquet.ParquetFile(stream)
                names = [name for name in target.names if name in file.schema_arrow.names]
                for rows in file.iter_batches(columns=names):
                    yield conformed(rows, target, day)

    class Source(source.DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> Any:
            return schema

        def reader(self, schema: Any) -> Any:  # noqa: ARG002
            return Reader()

    name = f"penstock_files_{uuid.uuid4().hex}"
    untyped: Any = spark
    untyped.dataSource.register(Source)
    return untyped.read.format(name).load()


def conformed(rows: Any, target: Any, day: str | None) -> Any:
    """The rows with the columns of the target, those that they lack as nulls."""

    def column(field: Any) -> Any:
        if field.name == "day" and day is not None:
            return arrow.array([day] * rows.num_rows).cast(arrow.date32())
        if field.name not in rows.schema.names:
            return arrow.nulls(rows.num_rows, field.type)
        return rows.column(field.name).cast(field.type)

    return arrow.RecordBatch.from_arrays([column(field) for field in target], schema=target)


def spark_path(path: object) -> str:
    """A local path for Spark: with its scheme, and not percent-encoded."""
    return f"file:{path}"
