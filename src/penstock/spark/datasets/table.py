"""The table of a dataset: a Delta table in which each partition has one version at a time.

    lake/conflated/_delta_log/…                      the truth: which files count, and their runs
    lake/conflated/2026-01-05/1-9f2a….0-….parquet

It is in a folder, or at a URL of an object store, whose settings are those of the environment.

The columns `partition` and `run` are added to those of the frame, as Delta's partition columns: so
a snapshot says which run made each partition, whoever merges files later. A version is one commit:
the files of the run come, those of the version before go, and the application transaction names
the job. It follows the snapshot that was looked at, or fails, and whoever fails looks again.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError, Refused
from penstock.operate.storage_options import options_of_environment, without_secrets
from penstock.spark.pipelines.lake.data_files import LOG, TableFolder, flush
from penstock.spark.pipelines.lake.lake import CommitConflict, sentence
from penstock.spark.untyped_arrow import arrow
from penstock.task.dataset_plan import Made, PartitionVersion

PARTITION = "partition"
RUN = "run"
_NOTE = "penstock"  # in the log of a commit
_SETTINGS = {
    "delta.dataSkippingStatsColumns": PARTITION,  # values of others may be personal, and are kept
    "delta.logRetentionDuration": "interval 36500 days",  # it says which run made what
}
_COLUMNS = ["path", "size_bytes", "num_records", "partition.partition", "partition.run"]
_UNSAFE = re.compile(r"[^\w.-]")

_delta: Any = import_module("deltalake")
_errors: Any = import_module("deltalake.exceptions")
_actions: Any = import_module("deltalake.transaction")


class PartFile(msgspec.Struct, frozen=True):
    """One Parquet file of a version; no part of the table until a commit names it."""

    path: str  # relative to the table's folder
    rows: int
    bytes: int


class DatasetTable:
    """The Delta table in a folder, or at a URL."""

    def __init__(self, place: Path | str) -> None:
        uri = str(place)
        self.folder = TableFolder(uri, options_of_environment() if "://" in uri else {})

    def __str__(self) -> str:
        return self.folder.uri

    def find(self) -> TableSnapshot | None:
        """The table as it is now; None where there is none yet."""
        folder = self.folder.local
        if folder is not None and not (folder / LOG).is_dir():
            if folder.is_dir() and any(folder.glob("*.parquet")):
                raise Refused(
                    f"{self} holds files that are no table of Penstock: a dataset needs a folder"
                    " of its own"
                )
            return None
        try:
            delta = _delta.DeltaTable(str(self), storage_options=self.folder.options)
        except _errors.TableNotFoundError:
            return None
        except (_errors.DeltaError, OSError, ValueError) as error:
            raise Refused(f"the table {self} cannot be read: {said(self.folder, error)}") from None
        return TableSnapshot(self, delta)

    def versions(self) -> dict[str, PartitionVersion]:
        """What each partition is now."""
        found = self.find()
        return {} if found is None else found.versions()

    def create(self, schema: Any) -> TableSnapshot:
        """The table with at least these columns."""
        found = self.find()
        if found is None:
            columns = [*(field.with_nullable(True) for field in schema), *_OWN]
            try:
                _delta.DeltaTable.create(
                    str(self),
                    arrow.schema(columns),
                    partition_by=[PARTITION, RUN],
                    configuration=_SETTINGS,
                    storage_options=self.folder.options,
                    # Tried again it would be a second creation, behind the first.
                    commit_properties=_delta.CommitProperties(max_commit_retries=0),
                )
            except (_errors.DeltaError, OSError, ValueError) as error:
                found = self.find()  # another process may have been first
                if found is None:
                    raise self.unwritable(error) from None
            found = found or self.find()
        if found is None:
            raise Refused(f"the table {self} was deleted while it was made")
        return found.with_columns(schema)

    def unwritable(self, error: Exception) -> Refused:
        return Refused(
            f"the table {self} cannot be written: {said(self.folder, error)}. What it held before"
            " is intact"
        )


_OWN = (arrow.field(PARTITION, arrow.string()), arrow.field(RUN, arrow.string()))


class TableSnapshot:
    """A table at one moment, and the commit that follows it."""

    def __init__(self, table: DatasetTable, delta: Any) -> None:
        self.table = table
        self._delta = delta
        if delta.metadata().partition_columns != [PARTITION, RUN]:
            raise Refused(
                f"{table} is a Delta table, and no dataset's: it is not partitioned by {PARTITION}"
                f" and {RUN}. Name another folder"
            )
        added = arrow.table(delta.get_add_actions(flatten=True))
        self._rows = added.select(_COLUMNS).to_pylist()

    @property
    def number(self) -> int:
        return self._delta.version()

    def versions(self) -> dict[str, PartitionVersion]:
        """What each partition is in this snapshot."""
        found: dict[str, PartitionVersion] = {}
        for row in self._rows:
            text, run = row["partition.partition"], row["partition.run"]
            before = found.get(text, PartitionVersion(run))
            found[text] = PartitionVersion(
                run, before.rows + (row["num_records"] or 0), before.bytes + row["size_bytes"]
            )
        return found

    def paths(self) -> set[str]:
        """The files that this snapshot names."""
        return {row["path"] for row in self._rows}

    def files(self, partitions: Iterable[str]) -> list[str]:
        """The paths of the files of these partitions in the table; refused if one is missing.

        In an object store only whoever reads one finds that it is missing.
        """
        wanted = set(partitions)
        paths = [row["path"] for row in self._rows if row["partition.partition"] in wanted]
        folder = self.table.folder.local
        for path in paths:
            if (
                "://" in path
                or path.startswith("/")
                or ".." in path.split("/")
                or (folder is not None and not (folder / path).is_file())
            ):
                raise Refused(
                    f"the table {self.table} has lost {path.rpartition('/')[2]}, which its log"
                    " names: restore it from a backup, or run that partition again"
                )
        return paths

    def schema(self) -> Any:
        """The columns without our own, in Delta's form."""
        own = {PARTITION, RUN}
        return _delta.Schema([each for each in self._delta.schema().fields if each.name not in own])

    def committed_by(self, job: str) -> bool:
        """Whether a run of this job has committed a version."""
        return self._delta.transaction_version(_transaction(job)) is not None

    def made(
        self, partition: str, *, run: str | None = None, job: str | None = None
    ) -> Made | None:
        """What the log says of a run of a partition, or of a job's; the last one first."""
        for entry in self._delta.history():
            note = entry.get(_NOTE)
            if note is None:
                continue
            made = msgspec.json.decode(note, type=Made)
            wanted = (run or made.run, job or made.job, partition)
            if wanted == (made.run, made.job, made.partition):
                return made
        return None

    def made_lately(self, commits: int) -> dict[tuple[str, str], Made]:
        """What the last commits made, by partition and run."""
        notes = (entry.get(_NOTE) for entry in self._delta.history(commits))
        found = [msgspec.json.decode(note, type=Made) for note in notes if note is not None]
        return {(made.partition, made.run): made for made in reversed(found)}

    def with_columns(self, schema: Any) -> TableSnapshot:
        """The table with these columns too; refused where one has another type."""
        known = arrow.schema(self._delta.schema())
        wanted = arrow.schema(_delta.Schema.from_arrow(schema))
        missing: list[Any] = []
        for field in wanted:
            if field.name not in known.names:
                missing.append(field.with_nullable(True))
            elif known.field(field.name).type != field.type:
                raise Refused(
                    f"column {field.name} is now {field.type}, and in the table {self.table} it is"
                    f" {known.field(field.name).type}: cast it, or give the dataset another table"
                )
        if not missing:
            return self
        try:
            self._delta.alter.add_columns(_delta.Schema.from_arrow(arrow.schema(missing)).fields)
        except (_errors.DeltaError, OSError) as error:
            after = self.table.find()  # another run may have added them
            if after is None or any(field.name not in after.columns for field in missing):
                raise self.table.unwritable(error) from None
        found = self.table.find()
        if found is None:
            raise Refused(f"the table {self.table} was deleted while it was made")
        return found

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return arrow.schema(self._delta.schema()).names

    def commit(self, made: Made, files: Sequence[PartFile]) -> None:
        """Replace the partition by these files, with the run that made them: all or nothing.

        `CommitConflict` if anybody has changed the table since this snapshot.
        """
        values = {PARTITION: made.partition, RUN: made.run}
        now = round(1000 * time.time())
        actions: list[Any] = [
            _actions.RemoveAction(
                path=row["path"],
                data_change=True,
                deletion_timestamp=now,
                size=row["size_bytes"],
                partition_values={PARTITION: made.partition, RUN: row["partition.run"]},
            )
            for row in self._rows
            if row["partition.partition"] == made.partition
        ]
        actions += [
            _actions.AddAction(
                file.path,
                file.bytes,
                values,
                now,
                True,
                json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        try:
            self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                [PARTITION, RUN],
                commit_properties=_delta.CommitProperties(
                    custom_metadata={_NOTE: msgspec.json.encode(made).decode()},
                    app_transactions=[_delta.Transaction(_transaction(made.job), made.attempt)],
                    max_commit_retries=0,
                ),
            )
        except _errors.CommitFailedError:
            raise CommitConflict(f"another run changed the table {self.table} meanwhile") from None
        except (_errors.DeltaError, OSError) as error:
            raise self.table.unwritable(error) from None
        folder = self.table.folder.local
        if folder is not None:
            # Before the job is settled: then nobody would make it again.
            flush(folder / LOG / f"{self.number + 1:020d}.json")
            flush(folder / LOG)


def _transaction(job: str) -> str:
    return f"penstock {job}"


def file_path(partition: str, run: str) -> str:
    """A new file's path in the table's folder."""
    return f"{_UNSAFE.sub('_', partition)}/{run}-{uuid.uuid4().hex}.parquet"


def said(folder: TableFolder, error: Exception) -> str:
    """What an error of the storage says, in one line and without a secret."""
    return without_secrets(sentence(error), folder.options)


def write_file(folder: TableFolder, path: str, batches: Iterable[Any], schema: Any) -> PartFile:
    """Write Arrow batches as one file, complete on the disk when this returns."""
    parquet: Any = import_module("pyarrow.parquet")
    batches = iter(batches)
    rows = 0
    with _telling(folder):
        if folder.local is not None:
            (folder.local / path).parent.mkdir(parents=True, exist_ok=True)
        stream: Any = folder.filesystem().open_output_stream(path)
        writer: Any = parquet.ParquetWriter(stream, schema, store_schema=False)
    for batch in batches:  # what fails here is the frame's own
        with _telling(folder):
            writer.write_batch(batch)
        rows += batch.num_rows
    with _telling(folder):
        writer.close()
        size: int = stream.tell()
        stream.close()
        if folder.local is not None:
            flush(folder.local / path)
    return PartFile(path, rows, size)


@contextmanager
def _telling(folder: TableFolder) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise PenstockError(
            f"the table {folder.uri} cannot be written: {said(folder, error)}. What it held before"
            " is intact"
        ) from None
