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
from penstock.spark.connect import on_server
from penstock.spark.one_sentence import without_traceback
from penstock.spark.session_store import named_store, opened_store
from penstock.spark.source.readers import TableReader
from penstock.spark.source.tables import TABLES, table_named

COUNTS = (
    "queue string, task string, ready bigint, scheduled bigint, waiting bigint, paused bigint,"
    " running bigint, failed bigint, limited bigint, app string"
)


class PenstockSource(DataSource):
    """What Spark calls for `format("penstock")`; docs/how-to/spark-source.md has the options."""

    options: Mapping[str, str]

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        if "url" in options and on_server():
            raise Refused(
                "through Spark Connect a store is named by the option profile, never by url, which"
                " the server logs with the plan: change its password if it has one"
            )

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @without_traceback()
    def schema(self) -> str:
        table = self.options.get("table", "")
        return COUNTS if table == "counts" else TABLES[table_named(table, ("counts",))]

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        if self.options.get("table") == "counts":
            _check_counts(self.options)
            return CountsReader(self.options.get("profile"), self.options.get("url"))
        return TableReader(self.options, schema)

    @without_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  as Spark calls it
        try:
            from penstock.spark.source.stream import TableStream
        except ImportError:
            return NoStreamReader()
        return TableStream(self.options, schema)

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import BatchSink

        sink = BatchSink(schema, self.options, overwrite)
        sink.create_store()
        return sink

    @without_traceback()
    def streamWriter(  # noqa: N802  as Spark calls it
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from penstock.spark.sink import StreamSink

        sink = StreamSink(schema, self.options, overwrite)
        sink.create_store()
        return sink


class NoStreamReader(DataSourceStreamReader):
    """Refuses to read a stream before Spark 4.2; an error of `streamReader` itself 4.0 hides."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  as Spark calls it
        raise Refused(
            "reading a stream of the history needs pyspark 4.2 or newer, and this is"
            f" {pyspark.__version__}: read it in batches, with spark.read and the option after"
        )

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        del start, limit
        return self.initialOffset()  # the first that 4.0 calls is this one

    def read(self, partition: Any) -> Iterator[Any]:
        del partition
        yield from ()


def register(spark: Any, source: type[DataSource]) -> bool:
    """Register the source; False if Spark 4.0 has found pyspark_penstock by itself before."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        return False
    return True


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
        with (
            without_traceback(),
            opened_store(named_store(self._profile, self._url).url) as broker,
        ):
            for count in broker.count():
                yield tuple(getattr(count, column.split(" ")[0]) for column in COUNTS.split(", "))
