"""The data source `penstock`: `spark.read.format("penstock").option("table", "jobs").load()`.

Spark makes one in a Python process of its own, on the driver to plan and on executors to read: a
reader holds options only, and opens the store where it reads.
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

from penstock.app.settings import mask
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.spark.session_store import named_store
from penstock.spark.source.tables import TABLES, table_named

COUNTS = (
    "queue string, task string, ready bigint, scheduled bigint, waiting bigint, paused bigint,"
    " running bigint, failed bigint, limited bigint, app string"
)


class PenstockSource(DataSource):
    """Options: `table`, and `profile`, `url` or `app` where the session does not say which store.

    docs/how-to/spark-source.md has the others.
    """

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

        return BatchSink(schema, self.options, overwrite)

    def streamWriter(  # noqa: N802  as Spark calls it
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from penstock.spark.sink import StreamSink

        return StreamSink(schema, self.options, overwrite)


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
    """Refuse what would be passed over; names with a dot, and the path, are Spark's own."""
    for name in sorted(name.lower() for name in options):
        if name not in {"table", "profile", "url", "path"} and "." not in name:
            raise Refused(
                f"option {name!r} is not for the table counts, which has profile and url alone: it"
                " is small, filter the frame"
            )


class CountsReader(DataSourceReader):
    """Where jobs stand, per queue and task."""

    def __init__(self, profile: str | None, url: str | None) -> None:
        self._profile = profile
        self._url = url

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        del partition
        url = named_store(self._profile, self._url).url
        try:
            broker = open_broker(url, create=False)
        except Exception as error:
            raise Refused(f"{mask(url)} cannot be opened: {error}") from None
        try:
            for row in broker.count():
                yield (
                    row.queue,
                    row.task,
                    row.ready,
                    row.scheduled,
                    row.waiting,
                    row.paused,
                    row.running,
                    row.failed,
                    row.limited,
                    row.app,
                )
        finally:
            broker.close()
