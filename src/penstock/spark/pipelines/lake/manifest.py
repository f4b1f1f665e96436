"""The manifest of a lake: which files are part of it, and up to where history is in them.

It is the only truth about a lake. It changes by one rename, so whoever reads it sees all of a
change or nothing of it; a file that it does not name is no part of the lake.
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

    `first` and `last` are empty where rows have no position: in a dataset made from others.
    """

    path: str  # from the lake's folder
    day: str
    shard: str
    first: Position
    last: Position
    rows: int
    bytes: int
    generation: int  # of the manifest that named it first; rows that were moved keep theirs


class LakeTable(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a table, and its mark: per shard the last position that is in them."""

    marks: dict[str, Position] = {}
    files: tuple[LakeFile, ...] = ()
    built: dict[str, int] = {}  # of a dataset made from others: day -> generation it was made from


class LakeGap(msgspec.Struct, frozen=True, kw_only=True):
    """History of a store that this lake will never have: it was pruned before."""

    store: str
    after: Position
    until: Position  # up to and with it
    rows: int | None = None  # None: nobody counted them
    found_at: float = 0.0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All of a lake at one moment."""

    version: int = VERSION
    id: str = ""  # by which stores know it, wherever it is
    generation: int = 0  # counts the changes of files
    changed_at: float = 0.0
    tables: dict[str, LakeTable] = {}
    reached: dict[
        str, Position
    ] = {}  # by store: all rows up to there are in the tables, or in a gap
    told: dict[str, Position] = {}  # and how much of that the store was told
    gaps: tuple[LakeGap, ...] = ()

    def table(self, name: str) -> LakeTable:
        return self.tables.get(name, LakeTable())


class _Version(msgspec.Struct):
    version: int


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of the lake in this folder; None where there is no lake."""
    place = folder / NAME
    try:
        with os.fdopen(open_regular(place, os.O_RDONLY), "rb") as file:
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
            f"{place} is no manifest of a lake ({error}): name another folder, or put the file back"
            " from a copy"
        ) from None
    for table in manifest.tables.values():
        for file in table.files:
            if file.path.startswith("/") or ".." in file.path.split("/"):
                raise Refused(
                    f"{place} names {file.path!r}, which is outside of the lake: put the manifest"
                    " back from a copy"
                )
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put this manifest in force, all of it at once, and on the disk."""
    fresh = folder / f"_{NAME}"
    write_new(fresh, msgspec.json.format(msgspec.json.encode(manifest), indent=1), sync=True)
    fresh.replace(folder / NAME)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
