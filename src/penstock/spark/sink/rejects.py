"""Rejects: rows that cannot become jobs, kept as Parquet files with the reason in a column.

A file is hidden (Spark skips names that begin with an underscore) until the write is committed:
the files of task attempts that did not win are deleted.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.errors import Refused
from penstock.spark.sink.json_values import Faults
from penstock.spark.untyped_arrow import arrow

REASON = "penstock_error"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://")


def anchored(path: str) -> str:
    """The path as every process, on driver and executors, reads it."""
    if _SCHEME.match(path):
        return path.replace("s3a://", "s3://", 1)
    return str(Path(path).absolute())


class Rejects:
    """The file of one task attempt, created with the first rejected row."""

    def __init__(self, path: str, write: str, part: str) -> None:
        self._path = path
        self.name = _safe_name(f"{write}-{part}") + ".parquet"
        self._writer: Any = None

    def add(self, batch: Any, faults: Faults) -> None:
        """Add the rows that have a fault."""
        rows = sorted(faults)
        table = arrow.Table.from_batches([batch]).take(rows)
        reasons = arrow.array([faults[row] for row in rows], arrow.string())
        table = table.append_column(REASON, reasons)
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table)

    def _open(self, schema: Any) -> Any:
        files, folder = _file_system(self._path)
        parquet: Any = import_module("pyarrow.parquet")
        try:
            files.create_dir(folder, recursive=True)
            where = f"{folder}/_{self.name}"
            return parquet.ParquetWriter(where, schema, filesystem=files)
        except OSError as error:
            raise Refused(f"rejects={self._path!r} cannot be written: {error}") from None

    def close(self) -> str | None:
        """The file's name, if there is one."""
        if self._writer is None:
            return None
        self._writer.close()
        return self.name


def show(path: str, names: list[str]) -> None:
    """Make the files of a committed write visible."""
    files, folder = _file_system(path)
    for name in names:
        files.move(f"{folder}/_{name}", f"{folder}/{name}")


def delete(path: str, names: list[str]) -> None:
    """Delete the files of an aborted write."""
    files, folder = _file_system(path)
    fs: Any = import_module("pyarrow.fs")
    for name in names:
        for file in (f"{folder}/_{name}", f"{folder}/{name}"):
            if files.get_file_info(file).type != fs.FileType.NotFound:
                files.delete_file(file)


def delete_hidden(path: str, write: str) -> None:
    """Delete the hidden files that lost or killed task attempts of a finished write left."""
    files, folder = _file_system(path)
    fs: Any = import_module("pyarrow.fs")
    hidden = re.compile(re.escape(f"_{_safe_name(write)}") + r"-\d+-\d+-[0-9a-f]+\.parquet")
    for file in files.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        if hidden.fullmatch(file.base_name):
            files.delete_file(file.path)


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


def _file_system(path: str) -> tuple[Any, str]:
    fs: Any = import_module("pyarrow.fs")
    if not _SCHEME.match(path):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (arrow.ArrowInvalid, NotImplementedError) as error:
        raise Refused(f"rejects={path!r}: {error}") from error
