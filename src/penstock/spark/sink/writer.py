"""What Spark calls: `write` on executors, once per task attempt; `commit`, `abort` on the driver.

Each call is made in a Python process of its own, so a writer holds only what it was told. Between
them travel small messages: which part an attempt staged, and how many jobs it has.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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

from penstock.app.settings import mask
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.enqueue.ids import Ids
from penstock.errors import PenstockError, Refused
from penstock.spark.session_store import named_store
from penstock.spark.sink.column_roles import lay_out, tasks_of
from penstock.spark.sink.options import SinkOptions, parse_options
from penstock.spark.sink.rejects import Rejects, anchored, forget, show, sweep
from penstock.spark.sink.rows_to_jobs import MadeJobs, Maker

_STAGED_AT_ONCE = 4 * 1024 * 1024  # bytes of rows: a call costs what so many take
_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class WrittenPart(WriterCommitMessage):
    """What one task attempt wrote."""

    write: str
    name: str
    jobs: int  # staged; those that were enqueued at once are not counted
    rejects: str | None


class _Sink:
    """What a write in a batch and one in a stream have in common."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite:
            raise Refused('the sink only adds jobs: .mode("append"), or outputMode("append")')
        chosen = parse_options(options)
        if chosen.rejects is not None:
            chosen = msgspec.structs.replace(chosen, rejects=anchored(chosen.rejects))
        lay_out(schema, chosen, tasks_of(chosen))  # refuses what cannot be, before any row
        self._schema = schema
        self._options = chosen

    def _write_rows(self, write: str, batches: Iterator[Any]) -> WrittenPart:
        """Stage the jobs of these rows as a part of the write that is this attempt's alone."""
        options = self._options
        context = TaskContext.get()
        place = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
        part = f"{place[0]}/{place[1]}/{uuid.uuid4().hex[:8]}"
        app = tasks_of(options)
        rejects = None if options.rejects is None else Rejects(options.rejects, write, part)
        with _opened(options) as broker:
            maker = Maker(options, lay_out(self._schema, options, app), app, Ids(broker.clock))
            jobs = rows = size = 0
            ready: list[MadeJobs] = []
            for batch in batches:
                made = maker.make(batch)
                if made.faults and rejects is None:
                    row = min(made.faults)
                    raise Refused(
                        f"row {rows + row} of partition {place[0]}: {made.faults[row]}. The row:"
                        f" {maker.shown(batch, row)}. Leave such rows out, or keep them with"
                        ' .option("rejects", path)'
                    )
                if made.faults and rejects is not None:
                    rejects.add(batch, made.faults)
                ready.append(made)
                rows += batch.num_rows
                size += batch.nbytes
                if size >= _STAGED_AT_ONCE or "id" in options.columns:
                    jobs += self._hand_over(broker, write, part, ready)
                    ready, size = [], 0
            ready.append(maker.make_rest())
            jobs += self._hand_over(broker, write, part, ready)
        return WrittenPart(write, part, jobs, None if rejects is None else rejects.close())

    def _hand_over(self, broker: Broker, write: str, part: str, ready: Sequence[MadeJobs]) -> int:
        jobs = [job for made in ready for job in made.jobs]
        if not jobs:
            return 0
        if "id" in self._options.columns:
            broker.enqueue(jobs)
            return 0
        broker.stage(write, part, jobs)
        return sum(made.number for made in ready)

    def _publish(self, parts: Sequence[WrittenPart]) -> None:
        path, names = self._options.rejects, _rejected(parts)
        if path is not None:
            show(path, names)
        staged = {part.name: part.jobs for part in parts}
        for write in {part.write for part in parts}:
            with _opened(self._options) as broker:
                broker.commit_write(write, staged)
            if path is not None:
                sweep(path, write)

    def _discard(self, write: str, parts: Sequence[WrittenPart]) -> None:
        """Forget what was staged; what is not forgotten here is pruned after a day.

        So this never fails: Spark would show that, under a stack of Java's, and not why the write
        came to nothing.
        """
        with suppress(PenstockError, OSError):
            if self._options.rejects is not None:
                forget(self._options.rejects, _rejected(parts))
                sweep(self._options.rejects, write)
        with suppress(PenstockError), _opened(self._options) as broker:
            broker.discard(write)


class BatchSink(_Sink, DataSourceArrowWriter):
    """One `df.write`."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        self._write = self._options.write or f"spark/{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        return self._write_rows(self._write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._publish(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._discard(self._write, _parts(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """One `stream.writeStream`: each epoch of the query is a write of its own, and is one once."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        if self._options.write is not None:
            raise Refused("a stream names its writes itself, by query and epoch: leave out write")

    def write(self, iterator: Iterator[Any]) -> WrittenPart:
        context = TaskContext.get()
        said = [context and context.getLocalProperty(name) for name in (_QUERY, _EPOCH)]
        if not all(said):
            raise Refused(
                "this is no task of a streaming query: Spark says neither query nor epoch"
            )
        return self._write_rows(f"spark/{said[0]}/{said[1]}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as Spark calls it
        del batchId  # each part says it, and the query too
        self._publish(_parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  as above
        del batchId
        parts = _parts(messages)
        for write in {part.write for part in parts}:
            self._discard(write, parts)


@contextmanager
def _opened(options: SinkOptions) -> Generator[Broker]:
    url = named_store(options.profile, options.url).url
    try:
        broker = open_broker(url)
    except PenstockError as error:
        raise Refused(f"{mask(url)} cannot be opened: {error}") from None
    try:
        yield broker
    finally:
        broker.close()


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenPart]:
    return [message for message in messages if isinstance(message, WrittenPart)]


def _rejected(parts: Sequence[WrittenPart]) -> list[str]:
    return [part.rejects for part in parts if part.rejects is not None]
