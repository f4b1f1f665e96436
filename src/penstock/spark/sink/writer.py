"""The sink's `write` (on executors, once per task attempt), `commit` and `abort` (on the driver).

Each call is made in a Python process of its own, so a writer holds only its options. A commit
message says which part a task attempt staged, and how many jobs are in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.broker.protocol import Broker
from penstock.enqueue.ids import Ids
from penstock.errors import PenstockError, Refused
from penstock.spark.session_store import named_store, opened_store
from penstock.spark.sink.column_roles import lay_out, tasks_of
from penstock.spark.sink.options import SinkOptions, parse_options
from penstock.spark.sink.rejects import Rejects, anchored, delete, delete_hidden, show
from penstock.spark.sink.rows_to_jobs import JobMaker, MadeJobs

_STAGED_AT_ONCE = 4 * 1024 * 1024  # bytes of rows per call of stage
_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class WrittenPart(WriterCommitMessage):
    """The commit message of one task attempt."""

    write: str
    name: str
    jobs: int  # staged; those that were enqueued at once are not counted
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

    def create_store(self) -> None:
        """On the driver: an executor on another machine would create a SQLite file of its own."""
        with opened_store(_url_of(self._options), create=True):
            pass

    def _write_rows(self, write: str, batches: Iterator[Any]) -> WrittenPart:
        """Stage the jobs of these rows as a part of the write, named after this task attempt."""
        options = self._options
        context = TaskContext.get()
        partition = attempt = 0
        if context is not None:
            partition, attempt = context.partitionId(), context.taskAttemptId()
        part = f"{partition}/{attempt}/{uuid.uuid4().hex[:8]}"
        app = tasks_of(options)
        rejects = None if options.rejects is None else Rejects(options.rejects, write, part)
        with _open_store(options) as broker:
            maker = JobMaker(options, lay_out(self._schema, options, app), app, Ids(broker.clock))
            jobs = rows = size = 0
            ready: list[MadeJobs] = []
            for batch in batches:
                made = maker.make(batch)
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
                if size >= _STAGED_AT_ONCE or "id" in options.columns:
                    jobs += self._store_jobs(broker, write, part, ready)
                    ready, size = [], 0
            ready.append(maker.make_rest())
            jobs += self._store_jobs(broker, write, part, ready)
        return WrittenPart(write, part, jobs, None if rejects is None else rejects.close())

    def _store_jobs(self, broker: Broker, write: str, part: str, ready: Sequence[MadeJobs]) -> int:
        jobs = [job for made in ready for job in made.jobs]
        if not jobs:
            return 0
        if "id" in self._options.columns:
            broker.enqueue(jobs)
            return 0
        broker.stage(write, part, jobs)
        return sum(made.number for made in ready)

    def _commit(self, parts: Sequence[WrittenPart]) -> None:
        path, names = self._options.rejects, _rejected(parts)
        if path is not None:
            show(path, names)
        staged = {part.name: part.jobs for part in parts}
        for write in {part.write for part in parts}:
            with _open_store(self._options) as broker:
                broker.commit_write(write, staged)
            if path is not None:
                delete_hidden(path, write)

    def _discard(self, write: str, parts: Sequence[WrittenPart]) -> None:
        """Discard what was staged. Never fails: Spark would show that error, not the write's own.

        What cannot be discarded here is pruned after a day.
        """
        with suppress(PenstockError, OSError):
            if self._options.rejects is not None:
                delete(self._options.rejects, _rejected(parts))
                delete_hidden(self._options.rejects, write)
        with suppress(PenstockError), _open_store(self._options) as broker:
            broker.discard(write)


class BatchSink(_Sink, DataSourceArrowWriter):
    """A batch write: one `df.write`."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        self._write = self._options.write or f"spark/{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        return self._write_rows(self._write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._discard(self._write, _parts(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """A streaming write: each epoch (micro-batch) of the query is a write of its own, made once."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        if self._options.write is not None:
            raise Refused(
                "a stream names its writes by query and epoch: leave out the option write"
            )

    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        context = TaskContext.get()
        query, epoch = (context and context.getLocalProperty(name) for name in (_QUERY, _EPOCH))
        if not query or not epoch:
            raise Refused(f"this is no task of a streaming query: {_QUERY} or {_EPOCH} is not set")
        return self._write_rows(f"spark/{query}/{epoch}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as Spark calls it
        del batchId  # each part names its query and epoch
        self._commit(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as above
        del batchId
        parts = _parts(messages)
        for write in {part.write for part in parts}:
            self._discard(write, parts)


def _open_store(options: SinkOptions) -> AbstractContextManager[Broker]:
    return opened_store(_url_of(options))


def _url_of(options: SinkOptions) -> str:
    return named_store(options.profile, options.url).url


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenPart]:
    return [message for message in messages if isinstance(message, WrittenPart)]


def _rejected(parts: Sequence[WrittenPart]) -> list[str]:
    return [part.rejects for part in parts if part.rejects is not None]
