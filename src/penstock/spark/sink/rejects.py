"""Rejects: rows that cannot become jobs, kept as Parquet files with the reason in a column.

A file is hidden (Spark skips names that begin with an underscore) until its write is committed.
Before the commit, the files of the task attempts that won are put aside under the token of this
try (`set_aside`). After it, those of the try that committed the write are shown, whoever finds them
(`show`): so a write that is repeated shows its rejects once, after a kill at any step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
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
        self.name = f"{_safe_name(write)}-{part.replace('/', '-')}.parquet"
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


def set_aside(path: str, token: str, names: list[str]) -> None:
    """Before the commit: put the files of the attempts that won under the token of this try."""
    files, folder = _file_system(path)
    for name in names:
        if _exists(files, f"{folder}/_{name}"):  # else an earlier call of the same try has done it
            files.move(f"{folder}/_{name}", f"{folder}/_{token}.{name}")


def show(path: str, write: str, token: str) -> None:
    """After the commit: show the files of the try that won, and delete all others of the write."""
    files, folder = _file_system(path)
    for file, its_token, name in _hidden(path, write):
        if its_token == token:
            files.move(file, f"{folder}/{name}")
        else:
            files.delete_file(file)


def show_latest(path: str, write: str, names: list[str]) -> None:
    """For a write that may be repeated with more rows: show its files in place of earlier ones."""
    files, folder = _file_system(path)
    shown = re.compile(_pattern(write))
    for file in _files(path):
        if shown.fullmatch(file.base_name) and file.base_name not in names:
            files.delete_file(file.path)
    for name in names:
        if _exists(files, f"{folder}/_{name}"):
            files.move(f"{folder}/_{name}", f"{folder}/{name}")
    delete_hidden(path, write)


def delete_hidden(path: str, write: str, token: str | None = None) -> None:
    """Delete what task attempts of a write left, and what was put aside under this token."""
    files, _ = _file_system(path)
    for file, its_token, _ in _hidden(path, write):
        if its_token is None or its_token == token:
            files.delete_file(file)


def _hidden(path: str, write: str) -> Iterator[tuple[str, str | None, str]]:
    """The hidden files of a write: path, token if it was put aside, and name."""
    hidden = re.compile(rf"_(?:([0-9a-f]+)\.)?({_pattern(write)})")
    for file in _files(path):
        if match := hidden.fullmatch(file.base_name):
            yield file.path, match[1], match[2]


def _files(path: str) -> list[Any]:
    files, folder = _file_system(path)
    fs: Any = import_module("pyarrow.fs")
    return files.get_file_info(fs.FileSelector(folder, allow_not_found=True))


def _exists(files: Any, path: str) -> bool:
    fs: Any = import_module("pyarrow.fs")
    return files.get_file_info(path).type != fs.FileType.NotFound


def _pattern(write: str) -> str:
    """A regular expression for the names of a write's files."""
    return re.escape(_safe_name(write)) + r"-\d+-\d+-[0-9a-f]+\.parquet"


def _safe_name(name: str) -> str:
    """A name for files; names that differ stay different."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return safe if safe == name else f"{safe}-{sha256(name.encode()).hexdigest()[:8]}"


def _file_system(path: str) -> tuple[Any, str]:
    fs: Any = import_module("pyarrow.fs")
    if not _SCHEME.match(path):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (arrow.ArrowInvalid, NotImplementedError) as error:
        raise Refused(f"rejects={path!r}: {error}") from error
