"""Copying: slices of a store become files of a lake, where they are read.

Arrow writes the files in the process that has the rows: handing them to Java first, so that Spark
would write them, took half as long again. An attempt that was lost leaves files in the staging
place and is told by nobody: part of the lake becomes what the attempts that counted have named.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark.pipelines.lake.manifest import LakeFile
from penstock.spark.source.tables import TABLES, TIMES
from penstock.spark.untyped_arrow import arrow, compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.broker.position import Position
    from penstock.broker.protocol import Broker
    from penstock.broker.slice import Slice

ROWS_PER_GROUP = 131_072
BYTES_HELD = 64 << 20  # of rows that wait for their group to be full; wide ones are written sooner
# Of the others nearly every value is another one, and a dictionary of them is made for nothing.
_REPEATED = (
    "shard",
    "app",
    "queue",
    "task",
    "state",
    "reason",
    "key",
    "worker",
    "kind",
    "error",
    "headers",
    "flow",
    "node",
    "attempt",
    "version",
    "priority",
    "failures",
    "lapses",
    "schema_version",
)


def copy(spark: SparkSession, broker: Broker, stretch: Slice, place: Path) -> list[LakeFile]:
    """Write a stretch of the store's history below this place, a slice on each core."""
    from penstock.spark.source.readers import TableReader  # which needs a newer Spark than the rest

    table = stretch.selection.table
    types: Any = import_module("pyspark.sql.types")
    cores = spark.sparkContext.defaultParallelism
    options = {"table": table, "slices": str(cores)}
    reader = TableReader(options, types.StructType.fromDDL(TABLES[table]))
    parts = reader.parts(broker, stretch.after, stretch.until)
    place.mkdir(parents=True)
    numbers: Any = spark.sparkContext.parallelize(range(len(parts)), max(1, len(parts)))

    def copied(number: int) -> bytes:
        files = Files(place, TIMES[table], parts[number].store)
        for rows in reader.read(parts[number]):
            files.add(rows)
        return msgspec.json.encode(files.close())

    told: list[bytes] = numbers.map(copied).collect()
    written = [file for each in told for file in msgspec.json.decode(each, type=list[LakeFile])]
    return sorted(written, key=lambda file: (file.day, file.first))


class Files:
    """The files of one slice, one for each day that it has rows of."""

    def __init__(self, place: Path, time: str, shard: str) -> None:
        self._place = place
        self._time = time
        self._shard = shard
        self._parquet: Any = import_module("pyarrow.parquet")
        self._files: dict[str, _File] = {}

    def add(self, rows: Any) -> None:
        for day, of_day in _by_day(rows, self._time):
            if day not in self._files:
                path = self._place / f"{uuid.uuid4().hex}.parquet"
                self._files[day] = _File(self._parquet, path)
            self._files[day].add(of_day)
        held = self._files.values()
        if sum(file.bytes_held for file in held) >= BYTES_HELD:
            max(held, key=lambda file: file.bytes_held).write()

    def close(self) -> list[LakeFile]:
        return [file.close(day, self._shard) for day, file in self._files.items()]


class _File:
    def __init__(self, parquet: Any, path: Path) -> None:
        self._parquet = parquet
        self._path = path
        self._writer: Any = None
        self._held: list[Any] = []
        self._rows_held = 0
        self.bytes_held = 0
        self._rows = 0
        self._first: Position = ""
        self._last: Position = ""

    def add(self, rows: Any) -> None:
        ends = compute.min_max(rows.column("position")).as_py()
        self._first = min(self._first or ends["min"], ends["min"])
        self._last = max(self._last, ends["max"])
        self._held.append(rows)
        self._rows += rows.num_rows
        self._rows_held += rows.num_rows
        self.bytes_held += rows.nbytes
        if self._rows_held >= ROWS_PER_GROUP:
            self.write()

    def write(self) -> None:
        table = arrow.Table.from_batches(self._held)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(
                self._path,
                table.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in _REPEATED if name in table.schema.names],
                store_schema=False,  # what other writers of a lake do not know
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._rows_held, self.bytes_held = [], 0, 0

    def close(self, day: str, shard: str) -> LakeFile:
        if self._held:
            self.write()
        self._writer.close()
        return LakeFile(
            path=str(self._path),
            day=day,
            shard=shard,
            first=self._first,
            last=self._last,
            rows=self._rows,
            bytes=self._path.stat().st_size,
            generation=0,
        )


def _by_day(rows: Any, time: str) -> Iterator[tuple[str, Any]]:
    """The rows of each day in UTC; of nearly every batch, all are of one."""
    if not rows.num_rows:
        return
    days = rows.column(time).cast(arrow.timestamp("us")).cast(arrow.date32(), safe=False)
    for day in compute.unique(days).to_pylist():
        of_day = compute.equal(days, day)
        yield day.isoformat(), rows if compute.all(of_day).as_py() else rows.filter(of_day)
