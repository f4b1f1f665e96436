"""The sink's `write` (on executors, once per task attempt), `commit` and `abort` (on the driver).

Each call is made in a Python process of its own, so a writer holds only its options. A commit
message says which part a task attempt staged, and how many jobs are in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

import msgspec
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.app.key_file import find_keys
from penstock.app.key_ring import KeyRing
from penstock.broker.protocol import Broker
from penstock.broker.values import UNNAMED, Epoch
from penstock.enqueue.ids import Ids
from penstock.errors import PenstockError, Refused, UnknownOutcome
from penstock.job import Job
from penstock.spark.one_sentence import without_traceback
from penstock.spark.session_store import named_app, named_store, opened_store, sealed_store
from penstock.spark.sink.column_roles import lay_out, tasks_of
from penstock.spark.sink.id_rows import new_rows, settle_left_out
from penstock.spark.sink.options import SinkOptions, parse_options
from penstock.spark.sink.rejects import (
    Rejects,
    anchored,
    delete_hidden,
    set_aside,
    show,
    show_latest,
)
from penstock.spark.sink.rows_to_jobs import JobMaker, MadeJobs, recipe_of

_STAGED_AT_ONCE = 4 * 1024 * 1024  # bytes of rows per call of stage
_STREAM = "stream/"  # how the names of a stream's writes begin: stream/QUERY/EPOCH
# Spark 4.0 has no such class, and hands Arrow batches to any writer that is both of these.
_StreamArrowWriter: Any = getattr(
    datasource,
    "DataSourceStreamArrowWriter",
    type("_StreamArrowWriter", (DataSourceArrowWriter, DataSourceStreamWriter), {}),
)
_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class WrittenPart(WriterCommitMessage):
    """The commit message of one task attempt."""

    write: str
    name: str
    jobs: int  # staged; rows that are jobs already are not counted
    rejects: str | None


class _Sink:
    """What batch and streaming writes share."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite:
            raise Refused('the sink only appends jobs: .mode("append"), or outputMode("append")')
        chosen = parse_options(options)
        if chosen.rejects is not None:
            chosen = msgspec.structs.replace(chosen, rejects=anchored(chosen.rejects))
        lay_out(schema, chosen, tasks_of(chosen))  # refuses a schema that does not fit the task
        self._schema = schema
        self._options = chosen
        self._key = _key_named(chosen)

    def create_store(self) -> None:
        """On the driver: an executor on another machine would create a SQLite file of its own.

        Refused if the rows would have to be encrypted, and there is no key.
        """
        with opened_store(_url_of(self._options), create=True) as broker:
            self._sealed(broker)

    def _sealed(self, broker: Broker) -> Broker:
        options = self._options
        return sealed_store(broker, _keys_of(options), self._key, _app_name(options))

    def _write_rows(self, write: str, batches: Iterator[Any]) -> WrittenPart:
        """Stage the jobs of these rows as a part of the write, named after this task attempt."""
        options = self._options
        context = TaskContext.get()
        partition = attempt = 0
        if context is not None:
            partition, attempt = context.partitionId(), context.taskAttemptId()
        part = f"{partition}/{attempt}/{uuid.uuid4().hex[:8]}"
        app = tasks_of(options)
        name = self._rejects_name(write)
        rejects = None if options.rejects is None else Rejects(options.rejects, name, part)
        with _open_store(options) as opened:
            broker = self._sealed(opened)
            maker = JobMaker(options, lay_out(self._schema, options, app), app, Ids(broker.clock))
            jobs = rows = size = 0
            ready: list[MadeJobs] = []
            for batch in batches:
                made = maker.make(batch)
                if "id" in options.columns:
                    made = self._compared(broker, made, batch)
                if made.faults and rejects is None:
                    row = min(made.faults)
                    raise Refused(
                        f"row {rows + row} of partition {partition}: {made.faults[row]}. The row:"
                        f" {maker.shown(batch, row)}. Filter such rows out, or collect them"
                        ' with .option("rejects", path)'
                    )
                if made.faults and rejects is not None:
                    rejects.add(batch, made.faults)
                ready.append(made)
                rows += batch.num_rows
                size += batch.nbytes
                if size >= _STAGED_AT_ONCE:
                    jobs += self._store_jobs(broker, write, part, ready)
                    ready, size = [], 0
            ready.append(maker.make_rest())
            jobs += self._store_jobs(broker, write, part, ready)
        return WrittenPart(write, part, jobs, None if rejects is None else rejects.close())

    def _compared(self, broker: Broker, made: MadeJobs, batch: Any) -> MadeJobs:
        """Without rows that are jobs already; those that have changed get a fault."""
        rows = cast("list[Job[Any]]", made.jobs)  # a row with an id is in no parcel
        jobs, refused = new_rows(broker, rows, self._options.on_change)
        if not refused:
            return MadeJobs([*jobs], len(jobs), made.faults)
        column = self._options.columns["id"]
        values: list[Any] = batch.column(column).to_pylist()
        good = [row for row in range(batch.num_rows) if row not in made.faults]
        faults = {
            row: f"{column}={values[row]!r} was enqueued with {refused[job.id]}: write"
            ' on_change="again" to run such rows again, "keep" to leave them as they are, or give'
            " the write another name"
            for row, job in zip(good, rows, strict=True)
            if job.id in refused
        }
        return MadeJobs([*jobs], len(jobs), {**made.faults, **faults})

    def _store_jobs(self, broker: Broker, write: str, part: str, ready: Sequence[MadeJobs]) -> int:
        jobs = [job for made in ready for job in made.jobs]
        if not jobs:
            return 0
        broker.stage(write, part, jobs)
        return sum(made.number for made in ready)

    def _commit(self, parts: Sequence[WrittenPart]) -> None:
        for write in {part.write for part in parts}:
            self._commit_write(write, [part for part in parts if part.write == write])

    def _commit_write(self, write: str, parts: Sequence[WrittenPart]) -> None:
        path, names = self._options.rejects, _rejected(parts)
        by_id = "id" in self._options.columns
        # The same for the same parts: a commit whose answer was lost is made again.
        token = sha256("\n".join(sorted(part.name for part in parts)).encode()).hexdigest()[:16]
        if path is not None and not by_id:
            set_aside(path, token, names)
        try:
            with _open_store(self._options) as opened:
                broker = self._sealed(opened) if by_id else opened
                staged = {part.name: part.jobs for part in parts}
                committed = broker.commit_write(write, staged, token, _epoch_of(write))
                if path is not None and by_id:
                    show_latest(path, self._rejects_name(write), names)
                if committed.left_out and by_id:
                    settle_left_out(broker, committed.left_out, self._options.on_change)
        except UnknownOutcome:
            raise  # if it is committed, whoever repeats it shows what was put aside
        except PenstockError:
            if path is not None:
                delete_hidden(path, write, token)
            raise
        if path is not None and not by_id:
            show(path, write, committed.token)

    def _rejects_name(self, write: str) -> str:
        """The name of the rejects: rows with an id may be written again under the same name."""
        by_id = "id" in self._options.columns and not write.startswith(_STREAM)
        return self._options.write or write if by_id else write

    def _discard(self, write: str) -> None:
        """Discard what was staged. Never fails: Spark would show that error, not the write's own.

        What cannot be discarded here is pruned after a day.
        """
        with suppress(PenstockError, OSError):
            if self._options.rejects is not None:
                delete_hidden(self._options.rejects, self._rejects_name(write))
        with suppress(PenstockError), _open_store(self._options) as broker:
            broker.discard(write)


class BatchSink(_Sink, DataSourceArrowWriter):
    """A batch write: one `df.write`."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        # With an id each row is made once, and the write may come again with more of them.
        named = None if "id" in self._options.columns else self._options.write
        self._write = named or f"{UNNAMED}{uuid.uuid4()}"

    @without_traceback()
    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        return self._write_rows(self._write, iterator)

    @without_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        del messages  # what other attempts left goes, too
        self._discard(self._write)


class StreamSink(_Sink, _StreamArrowWriter):
    """A streaming write: each epoch (micro-batch) of the query is a write of its own, made once."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        if self._options.write is not None:
            raise Refused(
                "a stream names its writes by query and epoch: leave out the option write"
            )

    @without_traceback()
    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        context = TaskContext.get()
        query, epoch = (context and context.getLocalProperty(name) for name in (_QUERY, _EPOCH))
        if not query or not epoch:
            raise Refused(f"this is no task of a streaming query: {_QUERY} or {_EPOCH} is not set")
        return self._write_rows(f"{_STREAM}{query}/{epoch}", iterator)

    @without_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as Spark calls it
        del batchId  # each part names its query and epoch
        self._commit(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as above
        del batchId
        for write in {part.write for part in _parts(messages)}:
            self._discard(write)


def _epoch_of(write: str) -> Epoch | None:
    """The epoch of a stream that a write of this name is; None for a batch write."""
    stream, _, number = write.rpartition("/")
    return Epoch(stream, int(number)) if write.startswith(_STREAM) else None


def _keys_of(options: SinkOptions) -> KeyRing | None:
    """The key ring of this process: that of the app, if it is named, else of a key file."""
    app = tasks_of(options)
    return find_keys(named_store(options.profile, options.url)) if app is None else app.keys


def _key_named(options: SinkOptions) -> str | None:
    """On the driver: the short hash that names the key to encrypt with; None: there is none."""
    if (recipe := recipe_of(options)) is not None and recipe.key is not None:
        return recipe.key
    keys = _keys_of(options)
    return None if keys is None else keys.names[0]


def _app_name(options: SinkOptions) -> str:
    if (recipe := recipe_of(options)) is not None:
        return recipe.lane.app
    if (app := tasks_of(options)) is not None:
        return app.name
    return named_app() if options.app_name is None else options.app_name


def _open_store(options: SinkOptions) -> AbstractContextManager[Broker]:
    return opened_store(_url_of(options))


def _url_of(options: SinkOptions) -> str:
    return named_store(options.profile, options.url).url


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenPart]:
    return [message for message in messages if isinstance(message, WrittenPart)]


def _rejected(parts: Sequence[WrittenPart]) -> list[str]:
    return [part.rejects for part in parts if part.rejects is not None]
