"""Keeps the rollups of a lake up to date: made again for the days whose rows changed, no others.

A Spark task reads some files of a day and writes what it made of them; the driver gets names of
files, and commits them for each table in place of the day's old ones. Without Spark the same is
done in this process, which is how `forget-rows` leaves rollups that are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark.connect import run_on_server
from penstock.spark.pipelines.lake.data_files import DataFile, TableFolder, write_rows
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake, Snapshot
from penstock.spark.pipelines.lake.raw_tables import conformed
from penstock.spark.pipelines.rollups.attempts import COLUMNS, rollup_attempts
from penstock.spark.pipelines.rollups.days import (
    EVENT_COLUMNS,
    FLOW_DAYS,
    SCHEDULE_DAYS,
    STEP_COLUMNS,
    rollup_days,
)
from penstock.spark.pipelines.rollups.tables import OF_ATTEMPTS, OF_DAYS, SCHEMAS, STATES
from penstock.spark.source.tables import arrow_schema, columns_of
from penstock.spark.untyped_arrow import arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_AT_ONCE = 2_000_000  # of a task: it holds what is counted of them, some 200 MB
_GAUGE_COLUMNS = ("queue", "at", *STATES, "oldest")
_BUILT = "built {}"  # the version of a source that a rollup was made from


class RollupPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one task reads: some files of a day, or with `whole` the day and those before it."""

    day: str
    whole: bool
    files: dict[str, list[str]]  # by raw table


Written = dict[str, list[DataFile]]  # by rollup
Run = Callable[[list[RollupPart], Callable[[RollupPart], bytes]], list[bytes]]


def build(lake: Lake, run: Run, on_progress: Callable[[str, int], None]) -> dict[str, int]:
    """Bring every rollup up to date; returns the number of rebuilt days by rollup."""
    sources = {name: lake.table(name) for name in ("attempts", "events", "gauges")}
    done: dict[str, int] = {}
    for names, needed in ((OF_ATTEMPTS, ("attempts",)), (OF_DAYS, tuple(sources))):
        made_from = {name: sources[name] for name in needed}
        tables = {name: lake.find(name) for name in names}
        changed: set[str] = set()
        for table in tables.values():
            changed |= changed_days(table, made_from)
        done |= dict.fromkeys(names, len(changed))
        if not changed:
            continue
        on_progress(", ".join(names), len(changed))
        parts = list(_parts(made_from, changed, whole=names is OF_DAYS))
        tables = {name: lake.create(name, SCHEMAS[name]) for name in names}
        written: Written = {name: [] for name in names}
        for encoded in run(parts, Work(sources, tables)):
            for name, files in msgspec.json.decode(encoded, type=Written).items():
                written[name] += files
        marks = {_BUILT.format(name): source.version for name, source in made_from.items()}
        for name, table in tables.items():
            try:
                table.commit(written[name], removed=table.files(changed), marks=marks)
            except CommitConflict:
                done[name] = 0  # another run has built it, from rows as new as these
    return done


def build_here(parts: list[RollupPart], work: Callable[[RollupPart], bytes]) -> list[bytes]:
    """Build in this process."""
    return [work(part) for part in parts]


def build_with(spark: SparkSession) -> Run:
    """Build in Spark's tasks."""

    def run(parts: list[RollupPart], work: Callable[[RollupPart], bytes]) -> list[bytes]:
        def build_parts(numbers: list[int]) -> Iterator[str]:
            for number in numbers:
                yield work(parts[number]).decode()

        return [text.encode() for text in run_on_server(spark, build_parts, len(parts))]

    return run


class Work:
    """Reads the files of a part and writes its rollups; Spark pickles it, so it holds values."""

    def __init__(self, sources: dict[str, Snapshot], tables: dict[str, Snapshot]) -> None:
        self._sources = {name: source.place for name, source in sources.items()}
        self._places = {name: table.place for name, table in tables.items()}

    def __call__(self, part: RollupPart) -> bytes:
        def read(name: str, columns: Iterable[str]) -> Iterator[Any]:
            return read_files(self._sources[name], part.files.get(name, []), columns)

        if part.whole:
            day = round(1e6 * datetime.fromisoformat(part.day).replace(tzinfo=UTC).timestamp())
            made = rollup_days(
                read("attempts", STEP_COLUMNS),
                read("events", EVENT_COLUMNS),
                read("gauges", _GAUGE_COLUMNS),
                day,
            )
        else:
            made = rollup_attempts(read("attempts", COLUMNS))
        days = arrow.scalar(date.fromisoformat(part.day))
        written = {
            name: write_rows(
                # By the day of its raw rows: a part of an attempt may fall into the day before.
                rows.append_column("day", arrow.repeat(days, rows.num_rows)).to_batches(),
                self._places[name],
                "",
            )
            for name, rows in made.items()
        }
        return msgspec.json.encode(written)


def read_files(place: TableFolder, paths: list[str], columns: Iterable[str]) -> Iterator[Any]:
    """Batches of files of a table; a column that an older file lacks is null."""
    parquet: Any = import_module("pyarrow.parquet")
    filesystem = place.filesystem()
    kinds = columns_of(place.uri.rpartition("/")[2])
    schema = arrow_schema(", ".join(f"{name} {kinds[name]}" for name in columns))
    for path in paths:
        with filesystem.open_input_file(path) as stream:
            file = parquet.ParquetFile(stream)
            known = [name for name in schema.names if name in file.schema_arrow.names]
            for rows in file.iter_batches(columns=known):
                yield conformed(rows, schema, "")


def changed_days(rollup: Snapshot | None, sources: dict[str, Snapshot]) -> set[str]:
    """The days whose number of rows is another than when the rollup was built.

    Rows are only added or deleted, never changed, and joined files hold the same number of them.
    """
    changed: set[str] = set()
    for name, source in sources.items():
        version = None if rollup is None else rollup.mark(_BUILT.format(name))
        built = None if version is None else source.at_version(version)
        before = {} if built is None else built.rows_by_day()
        now = source.rows_by_day()
        changed |= {day for day in {*before, *now} if before.get(day) != now.get(day)}
    return changed


def _parts(sources: dict[str, Snapshot], days: set[str], *, whole: bool) -> Iterator[RollupPart]:
    if whole:
        back = {"attempts": FLOW_DAYS, "events": SCHEDULE_DAYS, "gauges": 1}
        for day in sorted(days):
            last = date.fromisoformat(day)
            files = {
                name: [
                    file.path
                    for file in source.files(
                        {str(last - timedelta(days=n)) for n in range(back[name])}
                    )
                ]
                for name, source in sources.items()
            }
            yield RollupPart(day=day, whole=True, files=files)
        return
    for day in sorted(days):
        paths: list[str] = []
        rows = 0
        # In the order of their rows, which is that of time: few intervals are in two parts.
        for file in sorted(
            sources["attempts"].files({day}), key=lambda file: file.lows.get("position", "")
        ):
            paths.append(file.path)
            rows += file.rows
            if rows >= _ROWS_AT_ONCE:
                yield RollupPart(day=day, whole=False, files={"attempts": paths})
                paths, rows = [], 0
        if paths:
            yield RollupPart(day=day, whole=False, files={"attempts": paths})
