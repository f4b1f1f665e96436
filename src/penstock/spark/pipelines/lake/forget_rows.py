"""Forgetting: deletes the rows of one person from a lake, by key or by tag. No Spark.

The files that hold such rows are written again without them, in one commit for each table; then
every file that the newest version does not need is deleted, which ends time travel. Delta's own
delete is not used: it would write the condition, and so the key itself, into the log.

An export that runs meanwhile may have files that no commit names yet, and they are deleted too. Its
commit then fails, because the vacuum writes to the log before it deletes, and it begins again.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from penstock.errors import Refused
from penstock.spark.pipelines.lake.data_files import DataFile, write_rows
from penstock.spark.pipelines.lake.lake import ROLLUP_NAMES, CommitConflict, Lake, Snapshot
from penstock.spark.pipelines.rollups.build import build, build_here
from penstock.spark.source.tables import TIMES
from penstock.spark.untyped_arrow import compute

_WITH_KEYS = ("attempts", "events")  # the tables that have keys and tags


class RowChoice(msgspec.Struct, frozen=True):
    """Rows with this key, or with this value of a tag."""

    key: str | None = None
    tag: tuple[str, str] | None = None

    def of(self, rows: Any) -> Any:
        """Which of these rows are meant; never null."""
        if self.tag is None:
            chosen = compute.equal(rows.column("key"), self.key)
        else:
            name, value = self.tag
            chosen = compute.equal(compute.map_lookup(rows.column("tags"), name, "first"), value)
        return compute.fill_null(chosen, fill_value=False)


class ForgottenRows(msgspec.Struct, kw_only=True):
    """What was deleted, or would be."""

    rows: dict[str, int]  # by table
    days: list[str]
    files: int = 0  # that held them, and are written again
    versions: int = 0  # earlier versions of the tables that can then no longer be read


def row_choice(key: str | None, tag: str | None) -> RowChoice:
    """What --key and --tag say."""
    if (key is None) is (tag is None):
        raise Refused("forget-rows needs one of --key KEY and --tag NAME=VALUE: whose rows?")
    if tag is None:
        return RowChoice(key=key)
    name, equals, value = tag.partition("=")
    if not equals or not name:
        raise Refused(f"--tag {tag!r}: a name and a value, as in tenant=acme")
    return RowChoice(tag=(name, value))


def forget_rows(lake: Lake, choice: RowChoice, *, dry_run: bool) -> ForgottenRows:
    """Delete the rows for good; the rollups of their days are made again without them.

    A dry run only counts. Run again after a kill, it deletes what is left.
    """
    lake.table(_WITH_KEYS[0])
    done = ForgottenRows(rows={}, days=[])
    days: set[str] = set()
    for name in _WITH_KEYS:
        hits = _forget_in(lake, name, choice, dry_run=dry_run)
        done.rows[name] = sum(number for _, number in hits)
        done.files += len(hits)
        days |= {file.day for file, _ in hits}
    done.days = sorted(days)
    if not dry_run and lake.find(ROLLUP_NAMES[0]) is not None:
        build(lake, build_here, lambda _names, _days: None)
    for name in (*_WITH_KEYS, *ROLLUP_NAMES):
        table = lake.find(name)
        if table is None:
            continue
        if not dry_run:
            # Also where nothing was found now: an earlier call may have been killed before this.
            table.delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        done.versions += table.version
    return done


def _forget_in(
    lake: Lake, name: str, choice: RowChoice, *, dry_run: bool
) -> list[tuple[DataFile, int]]:
    """Write the files of a table that hold such rows again without them; which, and how many."""
    while True:
        table = lake.table(name)
        hits = [(file, number) for file in table.files() if (number := _count(table, file, choice))]
        if dry_run or not hits:
            return hits
        fresh = write_rows(
            (rows for file, _ in hits for rows in _others(table, file, choice)),
            table.place,
            TIMES[name],
        )
        try:
            table.commit(fresh, removed=[file for file, _ in hits])
        except CommitConflict:
            continue
        return hits


def _count(table: Snapshot, file: DataFile, choice: RowChoice) -> int:
    column = "key" if choice.tag is None else "tags"
    batches = _batches(table, file, [column])
    return sum(compute.sum(choice.of(rows)).as_py() or 0 for rows in batches)


def _others(table: Snapshot, file: DataFile, choice: RowChoice) -> Iterator[Any]:
    for rows in _batches(table, file, None):
        yield rows.filter(compute.invert(choice.of(rows)))


def _batches(table: Snapshot, file: DataFile, columns: list[str] | None) -> Iterator[Any]:
    parquet: Any = import_module("pyarrow.parquet")
    with table.place.filesystem().open_input_file(file.path) as stream:
        yield from parquet.ParquetFile(stream).iter_batches(columns=columns)
