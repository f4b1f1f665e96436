"""A lake: a folder of Parquet files, by table and day, that holds history for good.

    lake/manifest.json                            the truth: files and marks
    lake/attempts/day=2026-11-15/SHARD-FIRST-LAST.7.parquet     shard, positions, generation
    lake/_staging/…                               not part of the lake yet

A change writes files under `_staging`, renames them into place, replaces the manifest, and then
removes the files that it replaced. After a kill at any step the current manifest names complete
files only, and the next writer removes the files that it does not name. No Spark here.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.private_files import open_regular
from penstock.broker.position import BEGINNING
from penstock.errors import Refused
from penstock.spark.pipelines.lake.manifest import (
    LakeFile,
    LakeTable,
    Manifest,
    read_manifest,
    write_manifest,
)

_STAGING = "_staging"
_LOCK = "_lock"
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")
_GLOB_CHARACTERS = frozenset("*?[]{}\\")
_PARQUET = ".parquet"


class Lake:
    """The lake in a folder. Reading needs no lock; changes go through `writing()`."""

    def __init__(self, folder: Path | str) -> None:
        if "://" in str(folder):
            raise Refused(
                f"{folder}: a lake is a folder of a local file system, because its manifest is"
                " replaced by a rename; mount the other storage, or copy the lake there"
            )
        self.folder = Path(folder).absolute()
        if special := set(str(self.folder)) & _GLOB_CHARACTERS:
            raise Refused(
                f"{self.folder}: Spark reads {min(special)} in a path as a glob pattern; choose"
                " another name"
            )

    def manifest(self) -> Manifest:
        """The current manifest; refused where there is no lake."""
        manifest = read_manifest(self.folder)
        if manifest is None:
            raise Refused(
                f"there is no lake in {self.folder}: penstock pipeline run --lake {self.folder}"
                " creates it"
            )
        return manifest

    def files(self, table: str, days: Iterable[str] | None = None) -> list[Path]:
        """The Parquet files of a table, of these days or of all."""
        chosen = None if days is None else set(days)
        paths = [
            self.folder / file.path
            for file in self.manifest().table(table).files
            if chosen is None or file.day in chosen
        ]
        for path in paths:
            self.refuse_links(path)
            if not path.is_file():
                raise Refused(
                    f"the lake {self.folder} has lost {path.relative_to(self.folder)}, which its"
                    " manifest names: restore it from a backup, or begin a new lake"
                )
        return paths

    @contextmanager
    def writing(self) -> Generator[LakeWriter]:
        """Lock the lake for changes, by one process at a time; creates it if there is none."""
        read_manifest(self.folder)  # before the lock: refuses what is no readable lake
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open_regular(
                self.folder / _LOCK, os.O_RDWR | os.O_CREAT, single=True, mode=0o644
            )
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Refused(
                    f"another process is writing to the lake {self.folder}: wait until it ends"
                ) from None
            manifest = read_manifest(self.folder)
            if manifest is None:
                self._refuse_other_data()
                manifest = Manifest()
            if not manifest.id:
                write_manifest(self.folder, msgspec.structs.replace(manifest, id=str(uuid.uuid4())))
            writer = LakeWriter(self)
            writer.remove_leftovers()
            yield writer
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        finally:
            os.close(lock)

    def refuse_links(self, path: Path) -> None:
        """Refuse symbolic links: one would have us read, write or delete outside of the lake."""
        for ancestor in (path, *path.parents):
            if ancestor == self.folder:
                return
            if ancestor.is_symlink():
                raise Refused(
                    f"{ancestor.relative_to(self.folder)} in the lake {self.folder} is a link, and"
                    " is not followed: replace it with the folder or file that it points to"
                )

    def _refuse_other_data(self) -> None:
        for path in self.folder.rglob(f"*{_PARQUET}"):
            if _STAGING not in path.parts:
                raise Refused(
                    f"{self.folder} holds {path.relative_to(self.folder)} and no manifest: a lake"
                    " needs a folder of its own"
                )


class LakeWriter:
    """Changes the lake, for the one process that holds its lock; every change is atomic."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.folder = lake.folder

    def manifest(self) -> Manifest:
        return self.lake.manifest()

    @contextmanager
    def staging(self) -> Generator[Path]:
        """A folder for files that are no part of the lake yet; removed afterwards."""
        staging = self.folder / _STAGING / uuid.uuid4().hex
        self.lake.refuse_links(staging)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def publish(
        self,
        table: str,
        staged: Sequence[LakeFile],
        *,
        replaces: Iterable[LakeFile] = (),
        built: dict[str, int] | None = None,
        keeps_generation: bool = False,
    ) -> None:
        """Add staged files to a table, in place of those that they replace, and advance its mark.

        The `path` of a staged file is where it is now. With `keeps_generation` the files hold the
        same rows as those that they replace, so datasets made from those need no rebuild.
        """
        manifest = self.manifest()
        generation = manifest.generation + 1
        gone = {file.path for file in replaces}
        before = manifest.table(table)
        kept = [file for file in before.files if file.path not in gone]
        fresh = [self._move_in(table, file, generation, n) for n, file in enumerate(staged)]
        if keeps_generation:
            newest = before.generations()
            fresh = [msgspec.structs.replace(file, generation=newest[file.day]) for file in fresh]
        marks = dict(before.marks)
        for file in fresh:
            if file.last:
                marks[file.shard] = max(marks.get(file.shard, BEGINNING), file.last)
        after = LakeTable(
            marks=marks,
            files=tuple(sorted([*kept, *fresh], key=lambda file: (file.day, file.path))),
            built={**before.built, **(built or {})},
        )
        self.change(generation=generation, tables={**manifest.tables, table: after})
        for path in gone:
            (self.folder / path).unlink(missing_ok=True)

    def change(self, **fields: Any) -> None:
        """Replace the manifest with one that has these fields, if that changes anything."""
        before = self.manifest()
        after = msgspec.structs.replace(before, **fields)
        if after != before:
            write_manifest(self.folder, msgspec.structs.replace(after, changed_at=time.time()))

    def remove_leftovers(self) -> None:
        """Remove files that a killed process left behind."""
        for folder in (
            self.folder / _STAGING,
            *self.folder.glob("*"),
            *self.folder.glob("*/day=*"),
        ):
            if folder.is_dir():
                self.lake.refuse_links(folder)
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)
        named = {file.path for table in self.manifest().tables.values() for file in table.files}
        for path in self.folder.glob(f"*/day=*/*{_PARQUET}"):
            if str(path.relative_to(self.folder)) not in named:
                path.unlink()

    def _move_in(self, table: str, file: LakeFile, generation: int, n: int) -> LakeFile:
        # No leading underscore: Spark and others skip such files.
        shard = _NOT_ALPHANUMERIC.sub("-", file.shard).strip("-") or "all"
        suffix = f"-{n}" if n else ""
        positions = "".join(
            f"-{_NOT_ALPHANUMERIC.sub('-', end)}" for end in (file.first, file.last) if end
        )
        path = (
            Path(table) / f"day={file.day}" / f"{shard}{positions}.{generation}{suffix}{_PARQUET}"
        )
        target = self.folder / path
        self.lake.refuse_links(target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Flushed before the manifest names it: after a power cut it must be complete.
        with Path(file.path).open("rb") as written:
            os.fsync(written.fileno())
        Path(file.path).replace(target)
        return msgspec.structs.replace(file, path=str(path), generation=generation)


def _unwritable(folder: Path, error: OSError) -> Refused:
    return Refused(
        f"the lake {folder} cannot be written: {error.strerror or error}. What it held before is"
        " intact. Make the folder writable, or name another one with --lake"
    )
