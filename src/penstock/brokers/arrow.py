"""Rows of a store as Arrow record batches, the form in which they travel in bulk.

One schema for what happened and one for jobs, the same for every store; JSON stays text, as it is
stored. pyarrow comes with the extra `spark` and is imported where somebody scans, never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec

from penstock.broker.slice import HISTORY, Selection
from penstock.broker.views import Event
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.job import ENDED, Job

ROWS_AT_ONCE = 10_000

_TEXT, _INT, _TIME = "text", "int", "time"
_JOB = {
    "queue": _TEXT,
    "task": _TEXT,
    "version": _INT,
    "priority": _INT,
    "state": _TEXT,
    "reason": _TEXT,
    "key": _TEXT,
    "attempt": _INT,
    "failures": _INT,
    "lapses": _INT,
    "enqueued_at": _TIME,
    "run_at": _TIME,
    "app": _TEXT,
}
_RUN = {"worker": _TEXT, "tags": _TEXT, "error": _TEXT, "body": _TEXT, "result": _TEXT}
EVENT_COLUMNS = {
    "position": _TEXT,
    "kind": _TEXT,
    "at": _TIME,
    "job": _TEXT,
    **_JOB,
    "started_at": _TIME,
    **_RUN,
    "data": _TEXT,
}
JOB_COLUMNS = {"id": _TEXT, **_JOB, "claimed_at": _TIME, "ended_at": _TIME, **_RUN}


@cache
def arrow() -> Any:
    """The module pyarrow."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise Refused(
            "reading in bulk needs pyarrow: pip install 'penstock-queue[spark]'"
        ) from error


@cache
def schema_of(table: str) -> Any:
    """The Arrow schema of a table's rows."""
    pa = arrow()
    types = {
        "text": pa.string(),
        "int": pa.int32(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    columns = EVENT_COLUMNS if table in HISTORY else JOB_COLUMNS
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


def batch_of(table: str, columns: Mapping[str, Sequence[Any]]) -> Any:
    """One record batch; times are seconds since the epoch, texts may be bytes."""
    pa, schema = arrow(), schema_of(table)
    kinds = EVENT_COLUMNS if table in HISTORY else JOB_COLUMNS
    arrays = [
        _array(pa, schema.field(name).type, kind, columns[name]) for name, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(pa: Any, arrow_type: Any, kind: str, values: Sequence[Any]) -> Any:
    if kind == "time":
        whole = [None if value is None else round(value * 1_000_000) for value in values]
        return pa.array(whole, pa.int64()).cast(arrow_type)
    if kind == "text":
        texts = [
            value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for value in values
        ]
        return pa.array(texts, arrow_type)
    return pa.array(values, arrow_type)


def event_batches(table: str, events: Iterable[Event]) -> Iterator[Any]:
    """Events as batches."""
    for some in _pages(events):
        rows: dict[str, list[Any]] = {
            name: [getattr(event, name) for event in some] for name in EVENT_COLUMNS
        }
        rows["tags"] = [_text(names) for names in rows["tags"]]
        yield batch_of(table, rows)


def job_batches(table: str, jobs: Iterable[Job[Any]]) -> Iterator[Any]:
    """Jobs as batches, their declared secrets hidden."""
    for some in _pages(jobs):
        rows: dict[str, list[Any]] = {
            name: [getattr(job, name) for job in some] for name in JOB_COLUMNS
        }
        rows["tags"] = [_text(names) for names in rows["tags"]]
        rows["body"] = [redact(body) for body in rows["body"]]
        yield batch_of(table, rows)


def hidden(batch: Any) -> Any:
    """A batch of jobs, their declared secrets hidden."""
    bodies = [
        text if text is None or '"secret"' not in text else redact(text.encode()).decode()
        for text in batch.column("body").to_pylist()
    ]
    return batch.set_column(
        batch.schema.get_field_index("body"),
        batch.schema.field("body"),
        arrow().array(bodies, arrow().string()),
    )


def selected_job(selection: Selection, job: Job[Any]) -> bool:
    """Whether a job is one of those wanted."""
    if selection.flow is not None or selection.node is not None:
        member = member_of(job.body)
        if member is None or selection.flow not in {None, member.id}:
            return False
        if selection.node not in {None, member.node}:
            return False
    return (
        (not selection.queue or job.queue in selection.queue)
        and (not selection.task or job.task in selection.task)
        and (not selection.state or job.state in selection.state)
        and (selection.table != "results" or job.state in ENDED)
    )


def _text(names: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(names).decode() if names else None


def _pages(values: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(values)
    while page := list(islice(iterator, ROWS_AT_ONCE)):
        yield page
