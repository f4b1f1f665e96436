"""The data source `penstock`: `spark.read.format("penstock").option("table", "jobs").load()`.

Spark makes one in a Python process of its own, on the driver to plan and on executors to read: a
reader holds options only, and opens the store where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.errors import Refused
from penstock.spark.session_store import named_store, opened_store
from penstock.spark.source.tables import TABLES, table_named

COUNTS = (
    "queue string, task string, ready bigint, scheduled bigint, waiting bigint, paused bigint,"
    " running bigint, failed bigint, limited bigint, app string"
)


class PenstockSource(DataSource):
    """What Spark calls for `format("penstock")`; docs/how-to/spark-source.md has the options."""

    options: Mapping[str, str]

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        table = self.options.get("table", "")
        return COUNTS if table == "counts" else TABLES[table_named(table, ("counts",))]

    def reader(self, schema: StructType) -> DataSourceReader:
        if self.options.get("table") == "counts":
            _check_counts(self.options)
            return CountsReader(self.options.get("profile"), self.options.get("url"))
        return _readers().TableReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  as Spark calls it
        return _readers().TableStream(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import BatchSink

        sink = BatchSink(schema, self.options, overwrite)
        sink.create_store()
        return sink

    def streamWriter(  # noqa: N802  as Spark calls it
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from penstock.spark.sink import StreamSink

        sink = StreamSink(schema, self.options, overwrite)
        sink.create_store()
        return sink


def _readers() -> Any:
    try:
        from penstock.spark.source import readers
    except ImportError as error:
        raise Refused(
            f"reading tables needs pyspark 4.2 or newer, this is {pyspark.__version__}:"
            " pip install -U pyspark"
        ) from error
    return readers


def _check_counts(options: Mapping[str, str]) -> None:
    """Refuse options that would have no effect; `path` and names with a dot are Spark's own."""
    for name in sorted(name.lower() for name in options):
        if name not in {"table", "profile", "url", "path"} and "." not in name:
            raise Refused(
                f"option {name!r} is not for the table counts, which takes profile and url: filter"
                " the DataFrame"
            )


class CountsReader(DataSourceReader):
    """The table `counts`: jobs by state, per queue, task and app."""

    def __init__(self, profile: str | None, url: str | None) -> None:
        self._profile = profile
        self._url = url

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        del partition
        with opened_store(named_store(self._profile, self._url).url) as broker:
            for count in broker.count():
                yield tuple(getattr(count, column.split(" ")[0]) for column in COUNTS.split(", "))
