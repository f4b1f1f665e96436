"""Replay: enqueues jobs again that ended, selected from the lake by an SQL condition.

A replayed job is a new job whose id is derived from the replay's name and the original job's id: a
replay that is repeated, also after a kill, enqueues nothing twice. Its headers name the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from penstock.broker.checks import is_path
from penstock.enqueue.ids import derived_id
from penstock.enqueue.secrets import HIDDEN, is_sealed
from penstock.errors import Refused
from penstock.job import Job
from penstock.spark.pipelines.datasets.clean_attempts import clean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.broker.protocol import Broker

ORIGIN = "penstock-replay-of"
NAME = "penstock-replay"
_AT_ONCE = 1000
_MOST_REASONS = 1000


class Replayed(msgspec.Struct, kw_only=True):
    """What a replay did, or would do."""

    name: str
    found: int = 0
    enqueued: int = 0  # dry run: would be, unless they were replayed before
    known: int = 0  # replayed before
    refused: int = 0
    reasons: dict[str, str] = {}  # job id -> why it cannot be replayed; the first thousand


class Origin(msgspec.Struct, kw_only=True):
    """The columns of an ended job that its replay is made from."""

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


def chosen(attempts: DataFrame, where: str) -> DataFrame:
    """Jobs whose last attempt meets `where`, an SQL condition on the columns of clean attempts."""
    try:
        ended = clean(attempts).where(where).where("finished")
        last = F.max_by(F.struct(*Origin.__struct_fields__), F.struct("attempt", "position")).alias(
            "last"
        )
        jobs = ended.groupBy("shard", "job").agg(last).select("last.*").orderBy("job")
        return jobs.select(F.to_json(F.struct(*Origin.__struct_fields__)).alias("row"))
    except (AnalysisException, ParseException) as error:
        raise Refused(f"--where {where!r} is no valid condition: {_first_line(error)}") from None


def replay(
    jobs: DataFrame,
    broker: Broker | None,
    name: str,
    on_progress: Callable[[Replayed], None],
) -> Replayed:
    """Enqueue the jobs that `chosen` selected; without a broker only count them."""
    if not name.strip():
        raise Refused("--name is empty: the ids of replayed jobs are derived from it")
    done = Replayed(name=name)
    rows = _fetch(jobs)
    while part := list(islice(rows, _AT_ONCE)):
        copies: list[Job[Any]] = []
        for (text,) in part:
            origin = msgspec.json.decode(text, type=Origin)
            done.found += 1
            reason = unfit(origin)
            if reason is None:
                copies.append(replayed_job(origin, name))
            else:
                done.refused += 1
                if done.refused <= _MOST_REASONS:
                    done.reasons[origin.job] = reason
        known = len(broker.enqueue(copies).known) if broker is not None and copies else 0
        done.known += known
        done.enqueued += len(copies) - known
        on_progress(done)
    return done


def _fetch(jobs: DataFrame) -> Iterator[Any]:
    """The rows; a valid condition may still fail on one of them, as a cast does."""
    try:
        yield from jobs.toLocalIterator()
    except PySparkException as error:
        raise Refused(f"--where fails on a row: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def unfit(origin: Origin) -> str | None:
    """Why a job cannot be replayed; None if it can."""
    if origin.flow is not None:
        return f"it is a member of flow {origin.flow}: use penstock retry"
    if is_path(origin.task):
        return f"its task {origin.task[:60]!r} is a file path, not a task's name"
    if origin.arguments is None:
        return "its arguments were not kept"
    try:
        arguments: Any = msgspec.json.decode(origin.arguments)
    except msgspec.DecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        return "its arguments are not a JSON object"
    hidden = [name for name, value in cast("dict[str, Any]", arguments).items() if value == HIDDEN]
    if hidden:
        return f"its argument {hidden[0]} is secret, and was not stored"
    return "its arguments are encrypted" if is_sealed(origin.arguments.encode()) else None


def replayed_job(origin: Origin, name: str) -> Job[Any]:
    """A new job with the original's arguments, headers, key and tags."""
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
