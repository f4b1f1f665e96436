"""The manifest of a lake: which files are part of it, and up to which position history is in them.

It is the only truth about a lake: a file that it does not name is no part of the lake. It is
replaced by one rename, so a reader sees all of a change or none of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from penstock.app.private_files import open_regular, write_new
from penstock.broker.position import Position
from penstock.errors import Refused

NAME = "manifest.json"
VERSION = 1


class LakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file: rows of one table, day and shard, all within a range of positions.

    `first` and `last` are empty in datasets, whose rows have no position.
    """

    path: str  # relative to the lake's folder
    day: str
    shard: str
    first: Position
    last: Position
    rows: int
    bytes: int
    generation: int  # of the manifest that first had these rows; compacted files keep it


class LakeTable(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a table, and per shard the last position that is in them (the mark)."""

    marks: dict[str, Position] = {}
    files: tuple[LakeFile, ...] = ()
    built: dict[str, int] = {}  # of a dataset: day -> generation of the source it was made from

    def generations(self) -> dict[str, int]:
        """The newest generation among the files of each day."""
        newest: dict[str, int] = {}
        for file in self.files:
            newest[file.day] = max(newest.get(file.day, 0), file.generation)
        return newest


class LakeGap(msgspec.Struct, frozen=True, kw_only=True):
    """History that the store pruned before it was exported."""

    store: str
    after: Position
    until: Position  # inclusive
    rows: int | None = None  # None: not counted
    found_at: float = 0.0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All of a lake at one moment."""

    version: int = VERSION
    id: str = ""  # by which stores know the lake, also after it was moved
    generation: int = 0  # counts changes of the files
    changed_at: float = 0.0
    tables: dict[str, LakeTable] = {}
    # By store: every row up to this position is in the tables, or in a gap.
    reached: dict[str, Position] = {}
    told: dict[str, Position] = {}  # by store: the mark that the store was last given
    gaps: tuple[LakeGap, ...] = ()

    def table(self, name: str) -> LakeTable:
        return self.tables.get(name, LakeTable())


class _Version(msgspec.Struct):
    version: int


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of the lake in this folder; None where there is no lake."""
    path = folder / NAME
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise Refused(
            f"{folder} is a file, or in one, and a lake is a folder: name another one with --lake"
        ) from None
    except OSError as error:
        raise Refused(f"the lake {folder} cannot be read: {error.strerror}") from None
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version > VERSION:
            raise Refused(
                f"the lake {folder} has manifest version {version}, this Penstock knows {VERSION}:"
                " upgrade Penstock here before it uses this lake"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise Refused(
            f"{path} is no manifest of a lake ({error}): name another folder, or put the file back"
            " from a copy"
        ) from None
    for table in manifest.tables.values():
        for file in table.files:
            if file.path.startswith("/") or ".." in file.path.split("/"):
                raise Refused(
                    f"{path} names {file.path!r}, which is outside of the lake: put the manifest"
                    " back from a copy"
                )
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically, and flush it to the disk."""
    fresh = folder / f"_{NAME}"
    write_new(fresh, msgspec.json.format(msgspec.json.encode(manifest), indent=1), sync=True)
    fresh.replace(folder / NAME)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
