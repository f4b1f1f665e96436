"""Export on executors: each Spark task reads a slice of the store and writes it as Parquet files.

Arrow writes the files in the Python worker that has the rows: handing the rows to the JVM, so that
Spark would write them, took half as long again. The files of a failed task attempt stay in the
staging folder: only files that a successful attempt returned become part of the lake.
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
BYTES_HELD = 64 << 20  # of buffered rows; beyond that a row group is written before it is full
# Columns with few distinct values, for which Parquet's dictionary encoding pays.
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


def copy_slice(spark: SparkSession, broker: Broker, history: Slice, folder: Path) -> list[LakeFile]:
    """Write a slice of the store's history into this folder, a part of it on each core."""
    from penstock.spark.source.readers import TableReader  # it needs Spark 4.2

    table = history.selection.table
    types: Any = import_module("pyspark.sql.types")
    cores = spark.sparkContext.defaultParallelism
    options = {"table": table, "slices": str(cores)}
    reader = TableReader(options, types.StructType.fromDDL(TABLES[table]))
    parts = reader.parts(broker, history.after, history.until)
    folder.mkdir(parents=True)
    numbers: Any = spark.sparkContext.parallelize(range(len(parts)), max(1, len(parts)))

    def copy_part(number: int) -> bytes:
        files = PartitionFiles(folder, TIMES[table], parts[number].store)
        for rows in reader.read(parts[number]):
            files.add(rows)
        return msgspec.json.encode(files.close())

    encoded: list[bytes] = numbers.map(copy_part).collect()
    written = [file for part in encoded for file in msgspec.json.decode(part, type=list[LakeFile])]
    return sorted(written, key=lambda file: (file.day, file.first))


class PartitionFiles:
    """The files of one Spark partition: one for each day that it has rows of."""

    def __init__(self, folder: Path, time: str, shard: str) -> None:
        self._folder = folder
        self._time = time
        self._shard = shard
        self._parquet: Any = import_module("pyarrow.parquet")
        self._files: dict[str, _File] = {}

    def add(self, rows: Any) -> None:
        for day, of_day in _by_day(rows, self._time):
            if day not in self._files:
                path = self._folder / f"{uuid.uuid4().hex}.parquet"
                self._files[day] = _File(self._parquet, path)
            self._files[day].add(of_day)
        files = self._files.values()
        if sum(file.bytes_held for file in files) >= BYTES_HELD:
            max(files, key=lambda file: file.bytes_held).write()

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
                store_schema=False,  # Spark does not write it either
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
    """The rows of each UTC day; nearly every batch is of one day."""
    if not rows.num_rows:
        return
    days = rows.column(time).cast(arrow.timestamp("us")).cast(arrow.date32(), safe=False)
    for day in compute.unique(days).to_pylist():
        of_day = compute.equal(days, day)
        yield day.isoformat(), rows if compute.all(of_day).as_py() else rows.filter(of_day)
