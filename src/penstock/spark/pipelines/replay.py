"""Replay: jobs that ended, chosen from the lake, are enqueued again.

A replayed job is a new one whose id is derived from the replay's name and its origin: the same
replay again, also after half of it was killed, enqueues nothing twice. Its headers say where it
comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.functions import max_by, struct, to_json

from penstock.broker.checks import is_path
from penstock.enqueue.ids import derived_id
from penstock.enqueue.secrets import HIDDEN
from penstock.errors import Refused
from penstock.job import Job
from penstock.spark.pipelines.datasets.clean_attempts import clean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.broker.protocol import Broker

ORIGIN = "penstock-replay-of"
NAME = "penstock-replay"
_AT_ONCE = 1000
_NAMED = 1000
_NEEDED = (
    "job",
    "app",
    "queue",
    "task",
    "version",
    "priority",
    "key",
    "tags",
    "arguments",
    "headers",
    "flow",
)


class Replayed(msgspec.Struct, kw_only=True):
    """What a replay did, or would do."""

    name: str
    found: int = 0
    enqueued: int = 0  # with a dry run: those that would be, but for the known ones
    known: int = 0  # replayed before
    refused: int = 0
    reasons: dict[str, str] = {}  # job -> why it cannot be replayed, of the first thousand


def chosen(attempts: DataFrame, where: str) -> DataFrame:
    """The jobs that ended as `where` says, a condition in SQL on the columns of clean attempts."""
    try:
        found = clean(attempts).where(where).where("finished")
        last = max_by(struct(*_NEEDED), struct("attempt", "position")).alias("last")
        picked = found.groupBy("shard", "job").agg(last).select("last.*").orderBy("job")
        return picked.select(to_json(struct(*_NEEDED)).alias("row"))
    except (AnalysisException, ParseException) as error:
        raise Refused(f"--where {where!r} cannot be asked of the lake: {_first(error)}") from None


def replay(
    jobs: DataFrame,
    broker: Broker | None,
    name: str,
    told: Callable[[Replayed], None],
) -> Replayed:
    """Enqueue what `chosen` found; without a broker only say what would be."""
    if not name.strip():
        raise Refused("--name is empty: a replay has a name, from which the ids are derived")
    done = Replayed(name=name)
    rows = _answered(jobs)
    while part := list(islice(rows, _AT_ONCE)):
        wanted: list[Job[Any]] = []
        for (text,) in part:
            row = msgspec.json.decode(text, type=Origin)
            done.found += 1
            reason = unfit(row)
            if reason is None:
                wanted.append(again(row, name))
            else:
                done.refused += 1
                if done.refused <= _NAMED:
                    done.reasons[row.job] = reason
        known = len(broker.enqueue(wanted).known) if broker is not None and wanted else 0
        done.known += known
        done.enqueued += len(wanted) - known
        told(done)
    return done


def _answered(jobs: DataFrame) -> Iterator[Any]:
    """The rows; a condition may be understood, and still fail on one of them."""
    try:
        yield from jobs.toLocalIterator()
    except PySparkException as error:
        raise Refused(f"--where cannot be asked of the lake: {_first(error)}") from None


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


class Origin(msgspec.Struct, kw_only=True):
    """A job that ended, as far as it can be made again."""

    job: str
    task: str
    app: str | None = None
    queue: str = "default"
    version: int = 1
    priority: int = 0
    key: str | None = None
    tags: dict[str, str] = {}
    arguments: str | None = None
    headers: str | None = None
    flow: str | None = None


def unfit(origin: Origin) -> str | None:
    """Why a job cannot be replayed; None if it can."""
    if origin.flow is not None:
        return f"it is part of flow {origin.flow}, which the others of it need: penstock retry it"
    if is_path(origin.task):
        return f"its task {origin.task[:60]!r} is a path, and no such task is stored"
    if origin.arguments is None:
        return "its arguments were not kept"
    try:
        arguments: Any = msgspec.json.decode(origin.arguments)
    except msgspec.DecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        return "its arguments are not readable"
    hidden = [name for name, value in cast("dict[str, Any]", arguments).items() if value == HIDDEN]
    if hidden:
        return f"its argument {hidden[0]} is secret, and was never written down"
    return None


def again(origin: Origin, name: str) -> Job[Any]:
    """The job once more, under an id of its own."""
    headers: dict[str, str] = msgspec.json.decode(origin.headers) if origin.headers else {}
    body = {
        "args": msgspec.Raw((origin.arguments or "{}").encode()),
        "headers": {**headers, ORIGIN: origin.job, NAME: name},
    }
    return Job(
        app=origin.app or "",
        id=derived_id("replay", name, origin.job, bucket=origin.key),
        task=origin.task,
        queue=origin.queue,
        version=origin.version,
        priority=origin.priority,
        key=origin.key,
        tags=origin.tags,
        body=msgspec.json.encode(body),
    )
