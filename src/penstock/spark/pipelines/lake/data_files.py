"""Parquet files of a lake's table, written by Arrow in the process that has the rows.

Handing the rows to the JVM, so that Spark would write them, took half as long again. A file is no
part of the lake until a commit names it: those of a failed task attempt are left to `compact`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.spark.untyped_arrow import arrow, compute

LOG = "_delta_log"
ROWS_PER_GROUP = 131_072
BYTES_HELD = 64 << 20  # of buffered rows; beyond that a row group is written before it is full
# The columns whose smallest and largest values stand in the log, for readers that skip files.
# No others: values of keys, tags or arguments may be personal, and the log keeps them.
STATISTICS = ("position", "shard", "ended_at", "at")
# Columns with few distinct values, for which Parquet's dictionary encoding pays.
_REPEATED = (
    *("shard", "app", "queue", "task", "state", "reason", "key", "worker", "kind", "error"),
    *("headers", "flow", "node", "attempt", "version", "priority", "failures", "lapses"),
    *("schema_version", "measure", "bucket", "tag", "value", "kind", "schedule"),
)


class TableFolder(msgspec.Struct, frozen=True):
    """Where the files of a table are: a local folder, or a URL with its storage options."""

    uri: str
    options: dict[str, str] = {}

    @property
    def local(self) -> Path | None:
        return None if "://" in self.uri else Path(self.uri)

    def filesystem(self) -> Any:
        """Arrow's file system, with this folder as its root."""
        fs: Any = import_module("pyarrow.fs")
        if self.local is not None:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        handler: Any = import_module("deltalake.fs").DeltaStorageHandler
        return fs.PyFileSystem(handler(self.uri, self.options))


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of a table: rows of one day."""

    path: str  # relative to the table's folder
    day: str
    rows: int
    bytes: int
    lows: dict[str, str] = {}  # the smallest and largest values of STATISTICS
    highs: dict[str, str] = {}

    def add_action(self, *, data_change: bool = True) -> Any:
        statistics = {
            "numRecords": self.rows,
            "minValues": self.lows,
            "maxValues": self.highs,
            "nullCount": dict.fromkeys(self.lows, 0),
        }
        action: Any = import_module("deltalake.transaction").AddAction
        now = round(1000 * time.time())
        day = {"day": self.day}
        return action(self.path, self.bytes, day, now, data_change, json.dumps(statistics))

    def remove_action(self) -> Any:
        action: Any = import_module("deltalake.transaction").RemoveAction
        return action(
            path=self.path,
            data_change=True,
            deletion_timestamp=round(1000 * time.time()),
            size=self.bytes,
            partition_values={"day": self.day},
        )


def write_rows(rows: Iterable[Any], folder: TableFolder, time_column: str) -> list[DataFile]:
    """Write Arrow batches; the files are no part of the table yet."""
    files = PartitionFiles(folder, time_column)
    try:
        for batch in rows:
            files.add(batch)
        return files.close()
    except OSError as error:
        raise PenstockError(
            f"the lake's table {folder.uri} cannot be written: {error.strerror or error}. What it"
            " held before is intact"
        ) from None


class PartitionFiles:
    """The files of one Spark partition: one for each day, shard and set of columns of its rows."""

    def __init__(self, folder: TableFolder, time_column: str) -> None:
        if folder.local is not None and not (folder.local / LOG).is_dir():
            raise PenstockError(
                f"the machine {os.uname().nodename} does not see the lake's folder {folder.uri}:"
                " on a cluster it must be shared by all machines, or in an object store"
            )
        self._folder = folder
        self._filesystem = folder.filesystem()
        self._time = time_column
        self._files: dict[tuple[str, ...], _File] = {}

    def add(self, rows: Any) -> None:
        for day, shard, part in _by_day_and_shard(rows, self._time):
            # Rows of another release may have other columns; a Parquet file has one schema.
            file = (day, shard, *part.schema.names)
            if file not in self._files:
                self._files[file] = _File(self._folder, self._filesystem, day)
            self._files[file].add(part)
        files = self._files.values()
        if sum(file.bytes_held for file in files) >= BYTES_HELD:
            max(files, key=lambda file: file.bytes_held).write()

    def close(self) -> list[DataFile]:
        return [file.close() for file in self._files.values()]


class _File:
    def __init__(self, folder: TableFolder, filesystem: Any, day: str) -> None:
        self._folder = folder
        self._filesystem = filesystem
        self._day = day
        self._path = f"day={day}/{uuid.uuid4().hex}.parquet"
        self._stream: Any = None
        self._writer: Any = None
        self._held: list[Any] = []
        self._rows_held = 0
        self.bytes_held = 0
        self._rows = 0
        self._lows: dict[str, str] = {}
        self._highs: dict[str, str] = {}

    def add(self, rows: Any) -> None:
        for name in STATISTICS:
            if name in rows.schema.names:
                ends = compute.min_max(rows.column(name)).as_py()
                if ends["min"] is None:
                    continue
                low, high = _text(ends["min"]), _text(ends["max"])
                self._lows[name] = min(self._lows.get(name, low), low)
                self._highs[name] = max(self._highs.get(name, high), high)
        self._held.append(rows)
        self._rows += rows.num_rows
        self._rows_held += rows.num_rows
        self.bytes_held += rows.nbytes
        if self._rows_held >= ROWS_PER_GROUP:
            self.write()

    def write(self) -> None:
        table = arrow.concat_tables(
            [arrow.Table.from_batches([rows]) for rows in self._held], promote_options="default"
        )
        if self._writer is None:
            if self._folder.local is not None:
                self._filesystem.create_dir(f"day={self._day}", recursive=False)
            self._stream = self._filesystem.open_output_stream(self._path)
            parquet: Any = import_module("pyarrow.parquet")
            self._writer = parquet.ParquetWriter(
                self._stream,
                table.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in _REPEATED if name in table.schema.names],
                store_schema=False,  # Spark does not write it either
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._rows_held, self.bytes_held = [], 0, 0

    def close(self) -> DataFile:
        if self._held:
            self.write()
        self._writer.close()
        size: int = self._stream.tell()
        self._stream.close()
        if self._folder.local is not None:
            # Before a commit names it: after a power cut it must be complete.
            flush(self._folder.local / self._path)
        return DataFile(
            path=self._path,
            day=self._day,
            rows=self._rows,
            bytes=size,
            lows=self._lows,
            highs=self._highs,
        )


def flush(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    moment: datetime = value.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _by_day_and_shard(rows: Any, time_column: str) -> Iterator[tuple[str, str, Any]]:
    """The rows of each UTC day and shard; nearly every batch is of one."""
    if not rows.num_rows:
        return
    if "day" in rows.schema.names:
        days = rows.column("day")
        rows = rows.drop_columns(["day"])
    else:
        moments = rows.column(time_column)
        days = moments.cast(arrow.timestamp("us")).cast(arrow.date32(), safe=False)
    for day in compute.unique(days).to_pylist():
        of_day = _where(rows, compute.equal(days, day))
        if "shard" not in rows.schema.names:
            yield day.isoformat(), "", of_day
            continue
        for shard in compute.unique(of_day.column("shard")).to_pylist():
            of_shard = compute.equal(of_day.column("shard"), shard)
            yield day.isoformat(), shard, _where(of_day, of_shard)


def _where(rows: Any, chosen: Any) -> Any:
    return rows if compute.all(chosen).as_py() else rows.filter(chosen)
