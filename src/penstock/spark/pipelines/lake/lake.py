"""A lake: a folder of Parquet files, by table and day, that holds history for good.

    lake/manifest.json                            the truth: files and marks
    lake/attempts/day=2026-11-15/SHARD-FIRST-LAST.7.parquet     shard, positions, generation
    lake/_staging/…                               not part of it yet

A change is: write under `_staging`, rename into place, then the manifest, then remove what it
replaced. Killed in between, the manifest that stands still names whole files, and the next one who
writes sweeps away what it does not name. No Spark here.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from penstock.app.private_files import open_regular
from penstock.broker.position import BEGINNING, Position
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
_ODD = re.compile(r"[^A-Za-z0-9]+")
_PATTERN = frozenset("*?[]{}\\")
_DATA = ".parquet"


class Lake:
    """The lake in a folder; reading needs no lock, writing goes through `writing`."""

    def __init__(self, folder: Path | str) -> None:
        if "://" in str(folder):
            raise Refused(
                f"{folder}: a lake is a folder of this machine, for its manifest changes by a"
                " rename; mount the other storage, or copy the lake there"
            )
        self.folder = Path(folder).absolute()
        if odd := set(str(self.folder)) & _PATTERN:
            raise Refused(
                f"{self.folder}: Spark takes {min(odd)} in a path for a pattern; name it otherwise"
            )

    @property
    def exists(self) -> bool:
        return read_manifest(self.folder) is not None

    def manifest(self) -> Manifest:
        """As it stands; refused where there is no lake."""
        found = read_manifest(self.folder)
        if found is None:
            raise Refused(
                f"there is no lake in {self.folder}: penstock pipeline run --lake {self.folder}"
                " makes it"
            )
        return found

    def files(self, table: str, days: Iterable[str] | None = None) -> list[Path]:
        """The files of a table, for any reader of Parquet; of these days, or of all."""
        wanted = None if days is None else set(days)
        found = [
            self.folder / file.path
            for file in self.manifest().table(table).files
            if wanted is None or file.day in wanted
        ]
        for path in found:
            self.refuse_links(path)
            if not path.is_file():
                raise Refused(
                    f"the lake {self.folder} has lost {path.relative_to(self.folder)}, which its"
                    " manifest names: put it back from a copy, or begin a new lake"
                )
        return found

    @contextmanager
    def writing(self) -> Generator[LakeWriter]:
        """The right to change the lake, which one process has at a time; makes it if need be."""
        read_manifest(self.folder)  # refuses a file, and a lake that it cannot read
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
                    f"another process writes to the lake {self.folder}: wait until it has ended"
                ) from None
            before = read_manifest(self.folder)
            if before is None:
                self._refuse_other_data()
                before = Manifest()
            if not before.id:
                named = msgspec.structs.replace(before, id=str(uuid.uuid4()))
                write_manifest(self.folder, named)
            change = LakeWriter(self)
            change.sweep()
            yield change
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        finally:
            os.close(lock)

    def refuse_links(self, path: Path) -> None:
        """Whoever may write here could have what we write, remove and read be elsewhere."""
        for each in (path, *path.parents):
            if each == self.folder:
                return
            if each.is_symlink():
                raise Refused(
                    f"{each.relative_to(self.folder)} in the lake {self.folder} is a link, and is"
                    " not followed: put what it leads to in its place"
                )

    def _refuse_other_data(self) -> None:
        for found in self.folder.rglob(f"*{_DATA}"):
            if _STAGING not in found.parts:
                raise Refused(
                    f"{self.folder} holds {found.relative_to(self.folder)} and no manifest: a lake"
                    " begins in a folder of its own"
                )


class LakeWriter:
    """What the one process that writes can do; every change is all or nothing."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.folder = lake.folder

    def manifest(self) -> Manifest:
        return self.lake.manifest()

    @contextmanager
    def staging(self) -> Generator[Path]:
        """A place for files that are no part of the lake yet; gone afterwards."""
        place = self.folder / _STAGING / uuid.uuid4().hex
        self.lake.refuse_links(place)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def publish(
        self,
        table: str,
        staged: Sequence[LakeFile],
        *,
        replaces: Iterable[LakeFile] = (),
        built: dict[str, int] | None = None,
        keeps_generation: bool = False,
    ) -> None:
        """Make staged files part of a table, in place of those that they replace.

        `LakeFile.path` of a staged one is where it is now. The table's mark moves on with them.
        With `keeps_generation` they hold the same rows as those that they replace, and what was
        made of these stays good.
        """
        now = self.manifest()
        generation = now.generation + 1
        gone = {file.path for file in replaces}
        before = now.table(table)
        kept = [file for file in before.files if file.path not in gone]
        fresh = [self._put(table, file, generation, n) for n, file in enumerate(staged)]
        if keeps_generation:
            newest: dict[str, int] = {}
            for file in before.files:
                newest[file.day] = max(newest.get(file.day, 0), file.generation)
            fresh = [msgspec.structs.replace(file, generation=newest[file.day]) for file in fresh]
        marks = dict(before.marks)
        for file in (each for each in fresh if each.last):
            marks[file.shard] = max(marks.get(file.shard, BEGINNING), file.last)
        after = LakeTable(
            marks=marks,
            files=tuple(sorted([*kept, *fresh], key=lambda file: (file.day, file.path))),
            built={**before.built, **(built or {})},
        )
        self.change(generation=generation, tables={**now.tables, table: after})
        for path in gone:
            (self.folder / path).unlink(missing_ok=True)

    def change(self, **fields: Any) -> None:
        """Put a manifest in force that differs in these fields; one that does not is left alone."""
        now = self.manifest()
        after = msgspec.structs.replace(now, **fields)
        if after != now:
            write_manifest(self.folder, msgspec.structs.replace(after, changed_at=time.time()))

    def sweep(self) -> None:
        """Remove what a process that was killed left behind."""
        for folder in (
            self.folder / _STAGING,
            *self.folder.glob("*"),
            *self.folder.glob("*/day=*"),
        ):
            if folder.is_dir():
                self.lake.refuse_links(folder)
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)
        named = {file.path for table in self.manifest().tables.values() for file in table.files}
        for found in self.folder.glob(f"*/day=*/*{_DATA}"):
            if str(found.relative_to(self.folder)) not in named:
                found.unlink()

    def _put(self, table: str, file: LakeFile, generation: int, n: int) -> LakeFile:
        # Never an underscore in front: Spark and others leave out such files.
        shard = _ODD.sub("-", file.shard).strip("-") or "all"
        more = f"-{n}" if n else ""
        span = "".join(f"-{_ODD.sub('-', end)}" for end in (file.first, file.last) if end)
        name = f"{shard}{span}.{generation}{more}{_DATA}"
        place = Path(table) / f"day={file.day}" / name
        self.lake.refuse_links((self.folder / place).parent)
        (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
        # Before the manifest names it: after a power cut it must not name half a file.
        with Path(file.path).open("rb") as written:
            os.fsync(written.fileno())
        Path(file.path).replace(self.folder / place)
        return msgspec.structs.replace(file, path=str(place), generation=generation)


def _unwritable(folder: Path, error: OSError) -> Refused:
    return Refused(
        f"the lake {folder} cannot be written: {error.strerror or error}; what it held before is"
        " whole. Make the folder writable, or name another one with --lake"
    )


def staged_files(
    place: Path, count: Callable[[Path], tuple[int, Position, Position]]
) -> list[LakeFile]:
    """What Spark wrote below `place` by `_shard` and `day`; `count` gives rows, first and last."""
    found: list[LakeFile] = []
    for path in sorted(place.rglob(f"*{_DATA}")):
        parts = dict(
            part.split("=", 1) for part in path.relative_to(place).parts[:-1] if "=" in part
        )
        rows, first, last = count(path)
        if rows:
            found.append(
                LakeFile(
                    path=str(path),
                    day=unquote(parts["day"]),
                    shard=unquote(parts.get("_shard", "")),
                    first=first,
                    last=last,
                    rows=rows,
                    bytes=path.stat().st_size,
                    generation=0,
                )
            )
    return found
