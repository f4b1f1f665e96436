"""Rows that cannot become jobs, kept as Parquet with the reason beside them.

A file is hidden (Spark reads none whose name begins with an underscore) until the write is
committed: what a task attempt rejected that did not win is nobody's.
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
    """The path as every process means it."""
    if _SCHEME.match(path):
        return path.replace("s3a://", "s3://", 1)
    return str(Path(path).absolute())


class Rejects:
    """The file of one part of a write; made with the first row that goes there."""

    def __init__(self, path: str, write: str, part: str) -> None:
        self._path = path
        self.name = _legible(f"{write}-{part}") + ".parquet"
        self._writer: Any = None

    def add(self, batch: Any, faults: Faults) -> None:
        """Keep the rows that have a fault."""
        rows = sorted(faults)
        table = arrow.Table.from_batches([batch]).take(rows)
        reasons = arrow.array([faults[row] for row in rows], arrow.string())
        table = table.append_column(REASON, reasons)
        if self._writer is None:
            self._writer = self._opened(table.schema)
        self._writer.write_table(table)

    def _opened(self, schema: Any) -> Any:
        files, folder = _place(self._path)
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
    """Committed: these files are for everybody to read."""
    files, folder = _place(path)
    for name in names:
        files.move(f"{folder}/_{name}", f"{folder}/{name}")


def forget(path: str, names: list[str]) -> None:
    """The write came to nothing, and so do these."""
    files, folder = _place(path)
    fs: Any = import_module("pyarrow.fs")
    for name in names:
        for place in (f"{folder}/_{name}", f"{folder}/{name}"):
            if files.get_file_info(place).type != fs.FileType.NotFound:
                files.delete_file(place)


def sweep(path: str, write: str) -> None:
    """The write is over: what attempts that lost, or died, have left hidden is nobody's."""
    files, folder = _place(path)
    fs: Any = import_module("pyarrow.fs")
    hidden = re.compile(re.escape(f"_{_legible(write)}") + r"-\d+-\d+-[0-9a-f]+\.parquet")
    for file in files.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        if hidden.fullmatch(file.base_name):
            files.delete_file(file.path)


def _legible(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


def _place(path: str) -> tuple[Any, str]:
    fs: Any = import_module("pyarrow.fs")
    if not _SCHEME.match(path):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (arrow.ArrowInvalid, NotImplementedError) as error:
        raise Refused(f"rejects={path!r}: {error}") from error
