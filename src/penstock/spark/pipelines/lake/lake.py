"""A lake: Delta tables that hold the history of stores for good, in a folder or an object store.

    lake/attempts/_delta_log/…                    the truth: which files count, and the marks
    lake/attempts/day=2026-11-15/….parquet

Every change is one commit of one table. It names the version that follows the snapshot it was made
from, and the storage lets only one process write that version: whoever comes second looks again.
So several processes may write, and a kill at any moment leaves the snapshot before or the one
after. No Spark here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake.data_files import (
    LOG,
    STATISTICS,
    DataFile,
    TableFolder,
    flush,
    write_rows,
)
from penstock.spark.untyped_arrow import arrow

VERSION = 1
TABLE_OF_ID = "attempts"  # the table whose id is the lake's
ROLLUP_NAMES = (
    *("minutes", "hours", "days", "tag_days", "failures", "workers"),
    *("flows", "flow_steps", "schedules", "depth"),
)
TABLE_NAMES = (TABLE_OF_ID, "events", "gauges", *ROLLUP_NAMES, "open_jobs", "gaps")
_VERSION = "penstock.lake"
_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})
_GLOB_CHARACTERS = frozenset("*?[]{}\\")
_OLD_MANIFEST = "manifest.json"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m|↳")

_delta: Any = import_module("deltalake")
_errors: Any = import_module("deltalake.exceptions")


class CommitConflict(PenstockError):
    """Another process has changed the table since the snapshot: look again, and begin anew."""


class Lake:
    """The lake in a folder, or at a URL of an object store with its storage options."""

    def __init__(self, location: Path | str, options: Mapping[str, str] | None = None) -> None:
        scheme, remote, _ = str(location).partition("://")
        if remote and scheme not in _SCHEMES:
            raise Refused(
                f"{location}: a lake is a folder, or a URL that begins with s3://, gs:// or"
                f" abfss://, and not with {scheme}://"
            )
        self.folder = None if remote else Path(location).absolute()
        self.location = str(self.folder or location).rstrip("/")
        self.options = dict(options or {})
        if self.folder is not None and (special := set(self.location) & _GLOB_CHARACTERS):
            raise Refused(
                f"{self.location}: Spark reads {min(special)} in a path as a glob pattern; choose"
                " another name"
            )

    def __str__(self) -> str:
        return self.location

    def place(self, name: str) -> TableFolder:
        """Where the files of a table are."""
        return TableFolder(f"{self.location}/{name}", self.options)

    def find(self, name: str) -> Snapshot | None:
        """A table as it is now; None where there is none."""
        self._refuse_what_is_no_lake(name)
        place = self.place(name)
        try:
            delta = _delta.DeltaTable(place.uri, storage_options=self.options)
        except _errors.TableNotFoundError:
            return None
        except (_errors.DeltaError, OSError, ValueError) as error:
            raise Refused(f"the lake {self} cannot be read: {sentence(error)}") from None
        return Snapshot(self, name, delta)

    def table(self, name: str) -> Snapshot:
        """A table as it is now; refused where there is none."""
        found = self.find(name)
        if found is None:
            raise Refused(
                f"there is no lake in {self}: penstock pipeline run --lake {self} creates it"
            )
        return found

    def exists(self) -> bool:
        return self.find(TABLE_OF_ID) is not None

    @property
    def id(self) -> str:
        """By which stores know the lake, also after it was moved."""
        return self.table(TABLE_OF_ID).id

    def create(self, name: str, schema: Any) -> Snapshot:
        """A table with at least these columns: created, or with those added that it lacks."""
        found = self.find(name)
        if found is None:
            settings = {
                "delta.dataSkippingStatsColumns": ",".join(
                    column for column in STATISTICS if column in schema.names
                )
                or "day",
                _VERSION: str(VERSION),
            }
            try:
                _delta.DeltaTable.create(
                    self.place(name).uri,
                    schema if "day" in schema.names else schema.append(_DAY),
                    partition_by=["day"],
                    configuration=settings,
                    storage_options=self.options,
                    raise_if_key_not_exists=False,
                    # Tried again it would be a second creation, behind the first.
                    commit_properties=_delta.CommitProperties(max_commit_retries=0),
                )
            except (_errors.DeltaError, OSError) as error:
                found = self.find(name)  # another process may have been first
                if found is None:
                    raise self.unwritable(error) from None
        return self.table(name) if found is None else found.with_columns(schema)

    def replace_rows(self, name: str, change: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Replace the rows of a small table by the Arrow table that `change` makes of them."""
        while True:
            table = self.find(name)
            rows = change([] if table is None else table.rows())
            if table is None:
                self.create(name, rows.schema)
                continue
            try:
                table.commit(write_rows(rows.to_batches(), table.place, ""), removed=table.files())
                return
            except CommitConflict:
                continue

    def unwritable(self, error: Exception) -> Refused:
        return Refused(
            f"the lake {self} cannot be written: {sentence(error)}. What it held before is intact."
            " Make it writable, or name another one with --lake"
        )

    def _refuse_what_is_no_lake(self, name: str) -> None:
        folder = self.folder
        if folder is None:
            return
        if (folder / _OLD_MANIFEST).exists():
            raise Refused(
                f"{folder} is a lake of an earlier Penstock, with a {_OLD_MANIFEST}: name another"
                f" folder, and penstock pipeline run --lake {folder}-2 fills it with what the"
                " store still has. The Parquet files of the old one can be read as they are"
            )
        try:
            if any(path.exists() and not path.is_dir() for path in (folder, folder.parent)):
                raise NotADirectoryError
            if not (folder / name / LOG).is_dir():
                for path in folder.glob("**/*.parquet"):
                    if not (folder / path.relative_to(folder).parts[0] / LOG).is_dir():
                        raise Refused(
                            f"{folder} holds {path.relative_to(folder)}, which is no part of a"
                            " lake: a lake needs a folder of its own"
                        )
            for path in (folder / name, *folder.glob(f"{name}/*"), *folder.glob(f"{name}/{LOG}/*")):
                self.refuse_link(path)
        except NotADirectoryError:
            raise Refused(
                f"{folder} is a file, or in one, and a lake is a folder: name another one with"
                " --lake"
            ) from None
        except OSError as error:
            raise Refused(f"the lake {folder} cannot be read: {error.strerror}") from None

    def refuse_link(self, path: Path) -> None:
        """Refuse symbolic links: one would have us read, write or delete outside of the lake."""
        if path.is_symlink() or (path.exists() and not (path.is_dir() or path.is_file())):
            raise Refused(
                f"{path.relative_to(self.folder or path)} in the lake {self} is a link or a pipe,"
                " and is not followed: replace it with the folder or file that it points to"
            )


_DAY = arrow.field("day", arrow.date32())


class Snapshot:
    """A table of a lake at one moment: its files and marks, and the commit that follows it."""

    def __init__(self, lake: Lake, name: str, delta: Any) -> None:
        self.lake = lake
        self.name = name
        self.place = lake.place(name)
        self.delta = delta
        metadata = delta.metadata()
        self.id: str = metadata.id
        version = metadata.configuration.get(_VERSION, "0")
        if int(version) > VERSION:
            raise Refused(
                f"the lake {lake} has version {version}, this Penstock knows {VERSION}: upgrade"
                " Penstock here before it uses this lake"
            )
        if delta.protocol().min_reader_version > 1:
            raise Refused(
                f"{name} in the lake {lake} uses features of Delta that Penstock does not read"
                f" ({', '.join(delta.protocol().reader_features or ['column mapping'])}):"
                " another program has switched them on; drop them there"
            )

    @property
    def version(self) -> int:
        return self.delta.version()

    def schema(self) -> Any:
        """The columns, as an Arrow schema."""
        return arrow.schema(self.delta.schema())

    def mark(self, name: str) -> int:
        """The number that was last committed under this name; 0 if none was."""
        return self.delta.transaction_version(name) or 0

    def files(self, days: Collection[str] | None = None) -> list[DataFile]:
        """The files of these days, or of all; refused if one is missing or cut short."""
        files = list(_data_files(self.delta, days))
        folder = self.place.local
        for file in files:
            if file.path.startswith("/") or "://" in file.path or ".." in file.path.split("/"):
                raise Refused(
                    f"the log of {self.name} in the lake {self.lake} names {file.path!r}, which is"
                    " outside of the lake: put the log back from a copy"
                )
            if folder is None:
                continue
            path = folder / file.path
            for part in (path.parent, path):
                self.lake.refuse_link(part)
            if not path.is_file() or path.stat().st_size != file.bytes:
                lost = "has lost" if not path.is_file() else "has only a part of"
                raise Refused(
                    f"the lake {self.lake} {lost} {self.name}/{file.path}, which its log names:"
                    " restore it from a backup, or begin a new lake"
                )
        return files

    def rows(self) -> list[dict[str, Any]]:
        """All rows of a small table."""
        return self.delta.to_pyarrow_table().to_pylist() if self.files() else []

    def rows_by_day(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for file in _data_files(self.delta, None):
            rows[file.day] = rows.get(file.day, 0) + file.rows
        return rows

    def at_version(self, version: int) -> Snapshot | None:
        """The table as it was at this version; None if its log does not go back so far."""
        try:
            older = _delta.DeltaTable(
                self.place.uri, version=version, storage_options=self.lake.options
            )
        except (_errors.DeltaError, OSError, ValueError):
            return None
        return Snapshot(self.lake, self.name, older)

    def with_columns(self, schema: Any) -> Snapshot:
        """The table with these columns too: those of a newer release are kept, none is dropped."""
        known = set(self.schema().names)
        missing = [field for field in schema if field.name not in known]
        if not missing:
            return self
        fields = _delta.Schema.from_arrow(arrow.schema(missing)).fields
        try:
            self.delta.alter.add_columns(fields)
        except (_errors.DeltaError, OSError) as error:
            raise self.lake.unwritable(error) from None
        return self.lake.table(self.name)

    def commit(
        self,
        added: Iterable[DataFile],
        *,
        removed: Iterable[DataFile] = (),
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Add files, remove others and set marks: all of it or nothing.

        `CommitConflict` if anybody has changed the table since this snapshot. A commit that were
        tried again behind another one could add a range of rows a second time.
        """
        actions = [file.add_action() for file in added]
        actions += [file.remove_action() for file in removed]
        numbers = [_delta.Transaction(name, number) for name, number in (marks or {}).items()]
        if (
            self.lake.find(self.name) is None
        ):  # deleted meanwhile: its log would begin in the middle
            self.lake.table(self.name)
        try:
            self.delta.create_write_transaction(
                actions,
                "append",
                self.delta.schema(),
                ["day"],
                commit_properties=_delta.CommitProperties(
                    app_transactions=numbers, max_commit_retries=0
                ),
            )
        except _errors.CommitFailedError:
            raise CommitConflict(
                f"another process changed {self.name} of the lake {self.lake} at the same moment"
            ) from None
        except (_errors.DeltaError, OSError) as error:
            raise self.lake.unwritable(error) from None
        if self.place.local is not None:
            # Before a store is told of it: then the store may prune what is in these files.
            flush(self.place.local / LOG / f"{self.version + 1:020d}.json")
            flush(self.place.local / LOG)


def sentence(error: Exception) -> str:
    """What an error of the storage says, in one line."""
    text = getattr(error, "strerror", None) or _COLOUR.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["?"]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def _data_files(delta: Any, days: Collection[str] | None) -> Iterable[DataFile]:
    for row in arrow.table(delta.get_add_actions(flatten=True)).to_pylist():
        day = str(row["partition.day"])
        if days is None or day in days:
            yield DataFile(
                path=row["path"],
                day=day,
                rows=row["num_records"],
                bytes=row["size_bytes"],
                lows={name: row[f"min.{name}"] for name in _TEXTS if row.get(f"min.{name}")},
                highs={name: row[f"max.{name}"] for name in _TEXTS if row.get(f"max.{name}")},
            )


_TEXTS = ("position", "shard")
