"""Stands in for a Spark session in tests that are not about Spark: frames of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

arrow: Any = import_module("pyarrow")
parquet: Any = import_module("pyarrow.parquet")


class ArrowFrame:
    """What a run asks of a frame."""

    def __init__(self, table: Any) -> None:
        self.table = table

    @property
    def columns(self) -> list[str]:
        return self.table.column_names

    def mapInArrow(self, function: Any, schema: str) -> ArrowFrame:  # noqa: N802  Spark's name
        batches = list(function(iter(self.table.to_batches())))
        empty = arrow.schema([(schema.split(maxsplit=1)[0], arrow.string())])
        return ArrowFrame(
            arrow.Table.from_batches(batches, batches[0].schema if batches else empty)
        )

    def collect(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.to_pylist() for column in self.table.columns), strict=True)

    def limit(self, rows: int) -> ArrowFrame:
        return ArrowFrame(self.table.slice(0, rows))

    def toArrow(self) -> Any:  # noqa: N802  Spark's name
        return self.table

    def count(self) -> int:
        return self.table.num_rows

    def rows(self) -> list[dict[str, Any]]:
        return self.table.to_pylist()


class _Context:
    setJobGroup = setLocalProperty = cancelJobGroup = addJobTag = removeJobTag = staticmethod(  # noqa: N815
        lambda *_, **__: None
    )


class _Sources:
    """Data sources in Python, by name; read in this process."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def register(self, source: Any) -> None:
        self._known[source.name()] = source

    def read(self, name: str) -> ArrowFrame:
        reader = self._known[name]({}).reader(None)
        batches = [rows for part in reader.partitions() for rows in reader.read(part)]
        return ArrowFrame(arrow.Table.from_batches(batches))


class _Reader:
    def __init__(self, sources: _Sources) -> None:
        self._sources = sources
        self._format = ""

    def format(self, name: str) -> _Reader:
        self._format = name
        return self

    def load(self) -> ArrowFrame:
        return self._sources.read(self._format)

    def schema(self, _: Any) -> _Reader:
        return self

    def parquet(self, *paths: str) -> ArrowFrame:
        tables = [
            parquet.read_table(path.removeprefix("file:"), partitioning=None) for path in paths
        ]
        return ArrowFrame(arrow.concat_tables(tables, promote_options="default"))


class ArrowSession:
    """What a run asks of a session."""

    sparkContext = _Context()  # noqa: N815
    dataSource = _Sources()  # noqa: N815

    @property
    def read(self) -> _Reader:
        return _Reader(self.dataSource)


def frame(**columns: list[Any]) -> ArrowFrame:
    return ArrowFrame(arrow.table(columns))
