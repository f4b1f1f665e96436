"""Export: copies history that the lake does not have yet from the store, each row once.

Each Spark task reads a slice of the store and writes it as files; the driver then commits the files
of a batch with the mark that says so. An export that was killed goes on from the mark, and one
that finds another at work begins its batch again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.app.settings import mask
from penstock.broker.position import Position
from penstock.broker.slice import Selection, Slice
from penstock.brokers.positions import position_text
from penstock.errors import PenstockError, Refused
from penstock.spark.connect import cores, profile_of, run_on_server
from penstock.spark.one_sentence import error_in, of_spark
from penstock.spark.pipelines.lake.data_files import (
    DataFile,
    TableFolder,
    write_rows,
)
from penstock.spark.pipelines.lake.lake import TABLE_OF_ID, CommitConflict, Lake
from penstock.spark.pipelines.lake.marks import LakeGap, mark_name, number_of_mark, put_mark
from penstock.spark.pipelines.lake.raw_tables import RAW, RawTable, create_raw_tables
from penstock.spark.session_store import opened_store, store_of
from penstock.spark.source.readers import TableReader
from penstock.spark.source.shards import ONLY, store_id, stores_in
from penstock.spark.source.tables import TABLES, TIMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.broker.protocol import Broker

OnProgress = Callable[[str, int], None]
ROWS_AT_ONCE = 1_000_000  # an export that is killed repeats at most these
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")


class Exported(msgspec.Struct, kw_only=True):
    """What an export did: rows copied by table, and gaps that the store reported."""

    taken: dict[str, int]
    gaps: list[LakeGap]


def export(
    spark: SparkSession,
    lake: Lake,
    on_progress: OnProgress,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    hold: float | None = None,
    read_url: str | None = None,
    connections: int | None = None,
) -> Exported:
    """Copy all history that the store has now, in batches of `rows_at_once`; of shards, of each.

    `on_progress` is called after each batch: the table, and its rows so far. The store keeps what
    the lake does not have for `hold` seconds beyond its retention; None: unchanged. History is read
    from `read_url`, a replica of the store, by at most so many `connections` at a time.
    """
    create_raw_tables(lake)
    with ExitStack() as stack:
        stores = stores_in(stack.enter_context(opened_store(store_of(spark))))
        replica = None if read_url is None else stack.enter_context(opened_store(read_url))
        replicas = {} if replica is None else stores_in(replica)
        taken: dict[str, int] = dict.fromkeys(RAW, 0)
        gaps: list[LakeGap] = []
        _check_ids(stores)
        # The history of a shard is one of its own, with its own mark.
        for shard, broker in stores.items():
            store = store_id(broker)
            gaps += put_mark(broker, lake, store, hold)
            if replicas and shard not in replicas:
                raise Refused(
                    f"{mask(read_url or '')} has no replica of shard {shard!r}: --read-url names "
                    "replicas of all shards, or is left out"
                )
            source = _Source(replicas.get(shard, broker), read_url, connections, shard)
            run = _Run(spark, broker, source, lake, store, rows_at_once=rows_at_once)
            # Attempts last: their mark says that every table is complete up to it.
            for table in reversed(RAW):
                for rows in run.copy(table):
                    taken[table] += rows
                    on_progress(table, taken[table])
            gaps += put_mark(broker, lake, store)
    return Exported(taken=taken, gaps=gaps)


def _check_ids(stores: Mapping[str, Broker]) -> None:
    """Refuse two shards with one id: the rows of one would be taken for those of the other."""
    known: dict[str, str] = {}
    for shard, broker in stores.items():
        other = known.setdefault(store_id(broker), shard)
        if other != shard:
            raise Refused(
                f"the stores of shards {other!r} and {shard!r} have one id, as the file or database"
                " of one was made as a copy of the other: a lake cannot tell their rows apart"
            )


class _Source(NamedTuple):
    """Where the history is read: in the store, or in a replica of it."""

    broker: Broker
    url: str | None  # of the replica
    connections: int | None
    shard: str = ONLY  # its name, where it is one of several


class _Run:
    """One export: up to a position that is complete once every table was copied up to it."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        source: _Source,
        lake: Lake,
        store: str,
        *,
        rows_at_once: int,
    ) -> None:
        self._spark = spark
        self._source = source
        self._lake = lake
        self._mark = mark_name(store)
        self._rows_at_once = rows_at_once
        self._lake_id = lake.id
        # A mark ahead of the store (restored from a backup) is refused here, not inside Spark.
        known = position_text(lake.table(TABLE_OF_ID).mark(self._mark))
        self._until = broker.reach(Selection(table="attempts"), known).position
        number_of_mark(self._until)
        if source.url is not None:
            # What a replica shows is complete up to there; it may be behind the lake.
            seen = source.broker.reach(Selection(table="attempts"), until=self._until)
            if seen.store != store:
                raise Refused(
                    f"{mask(source.url)} is the store {seen.store}, and history is exported from"
                    f" the store {store}: --read-url names a replica of it"
                )
            self._until = min(self._until, seen.position)

    def copy(self, table: RawTable) -> Iterator[int]:
        """Copy a table batch by batch: the rows of each."""
        try:
            while (rows := self._copy_batch(table)) is not None:
                if rows:
                    yield rows
        except Exception as error:
            if not isinstance(error, PenstockError) and not of_spark(error):
                raise
            reason = error if isinstance(error, PenstockError) else cause_of(error)
            raise PenstockError(
                f"the export of {table} failed: {reason}. Rows copied so far are in the lake; run"
                " it again, and it continues from there"
            ) from None

    def _copy_batch(self, table: RawTable) -> int | None:
        """Copy what comes next; returns its rows, None at the end.

        The snapshots are taken before any row is read, and the commit fails if they changed.
        """
        snapshot, attempts = self._lake.table(table), self._lake.table(TABLE_OF_ID)
        if attempts.id != self._lake_id:
            raise Refused(f"the lake {self._lake} was replaced by another one meanwhile")
        # A table without new rows keeps an older mark, and is complete all the same.
        after = position_text(max(snapshot.mark(self._mark), attempts.mark(self._mark)))
        batch = self._next_slice(table, after) if after < self._until else None
        files = (
            [] if batch is None else copy_slice(self._spark, self._source, batch, snapshot.place)
        )
        last = self._until if batch is None else batch.until
        if batch is None and (table != TABLE_OF_ID or after >= last):
            return None
        try:
            snapshot.commit(files, marks={self._mark: number_of_mark(last)})
        except CommitConflict:
            return 0  # another export was first: look again
        return sum(file.rows for file in files)

    def _next_slice(self, table: RawTable, after: Position) -> Slice | None:
        """The next rows of the table, at most `rows_at_once`; None if there are no more."""
        selection, until = Selection(table=table), self._until
        broker = self._source.broker
        if not broker.reach(selection, after, at_most=1, patience=0, until=until).full:
            return None
        reach = broker.reach(selection, after, self._rows_at_once, patience=0, until=until)
        return Slice(selection, after, reach.position if reach.full else until)


def copy_slice(
    spark: SparkSession, source: _Source, history: Slice, place: TableFolder
) -> list[DataFile]:
    """Write a slice of the store's history as files, a part of it on each core."""
    table = history.selection.table
    types: Any = import_module("pyspark.sql.types")
    slices = min(cores(spark), source.connections or cores(spark))
    options = {"table": table, "slices": str(slices)}
    if source.url is not None:
        options["url"] = source.url  # in the code of the tasks, which Spark never shows
    elif (profile := profile_of(spark)) is not None:
        options["profile"] = profile
    reader = TableReader(options, types.StructType.fromDDL(TABLES[table]))
    parts = reader.parts(source.broker, history.after, history.until, source.shard)

    def copy(numbers: list[int]) -> Iterator[str]:
        for number in numbers:
            files = write_rows(reader.read(parts[number]), place, TIMES[table])
            yield msgspec.json.encode(files).decode()

    encoded = run_on_server(spark, copy, len(parts))
    return [file for part in encoded for file in msgspec.json.decode(part, type=list[DataFile])]


def cause_of(error: Exception) -> str:
    """The original error's sentence, without the stack traces of Java and Python around it."""
    text = str(error)
    if (ours := error_in(text)) is not None:
        return str(ours)
    lines = [line.strip().removeprefix("Caused by: ") for line in text.splitlines()]
    if exceptions := [line for line in lines if _EXCEPTION.match(line)]:
        return exceptions[-1]
    before, separator, after = (
        text.strip().partition("\n")[0].partition(" terminated with exception: ")
    )
    return (after if separator else before).partition(" SQLSTATE")[0].rstrip(".") or "?"
