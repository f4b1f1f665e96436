"""Replay: enqueues jobs again that ended, selected from the lake by an SQL condition.

A replayed job is a new job whose id is derived from the replay's name and the original job's id: a
replay that is repeated, also after a kill, enqueues nothing twice. Its headers name the original.
Spark's tasks enqueue: the driver holds none of the jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F

from penstock.app.encrypted_broker import EncryptedBroker
from penstock.app.key_file import NO_KEYS, find_keys
from penstock.broker.checks import is_path
from penstock.enqueue.ids import lasting_id
from penstock.enqueue.secrets import HIDDEN, is_sealed
from penstock.errors import Refused
from penstock.job import Job
from penstock.spark.connect import profile_of
from penstock.spark.one_sentence import error_in, without_traceback
from penstock.spark.pipelines.clean_attempts import clean
from penstock.spark.session_store import named_store, opened_store, sealed_store
from penstock.spark.untyped_arrow import arrow

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
        jobs = ended.groupBy("shard", "job").agg(last).select("last.*")
        return jobs.select(F.to_json(F.struct(*Origin.__struct_fields__)).alias("row"))
    except (AnalysisException, ParseException) as error:
        raise Refused(f"--where {where!r} is no valid condition: {_first_line(error)}") from None


def replay(jobs: DataFrame, name: str, broker: Broker | None, *, dry_run: bool = False) -> Replayed:
    """Enqueue the jobs that `chosen` selected, in the store of the session, by Spark's tasks.

    `broker` is that store here, which says what has to be encrypted. A task that Spark repeats
    counts what it had enqueued before as known.
    """
    if not name.strip():
        raise Refused("--name is empty: the ids of replayed jobs are derived from it")
    key = broker.keys.names[0] if isinstance(broker, EncryptedBroker) else None
    work = _Work(name, profile_of(jobs.sparkSession), _apps_without_key(broker), key, dry_run)
    untyped: Any = jobs
    done = Replayed(name=name)
    try:
        rows: list[Any] = untyped.mapInArrow(work, "answer string").collect()
    except PySparkException as error:
        # A valid condition may still fail on a row, as a cast does.
        raise error_in(str(error)) or Refused(
            f"--where fails on a row: {_first_line(error)}"
        ) from None
    for (text,) in rows:
        part = msgspec.json.decode(text, type=Replayed)
        done.found += part.found
        done.enqueued += part.enqueued
        done.known += part.known
        done.refused += part.refused
        done.reasons |= part.reasons
    done.reasons = dict(sorted(done.reasons.items())[:_MOST_REASONS])
    return done


class _Work:
    """What a Spark task does with its rows; Spark pickles it, so it holds values."""

    def __init__(
        self,
        name: str,
        profile: str | None,
        sealed: frozenset[str],
        key: str | None,
        dry_run: bool,
    ) -> None:
        self._name = name
        self._profile = profile
        self._sealed = sealed
        self._key = key
        self._dry_run = dry_run

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        done = Replayed(name=self._name)
        with without_traceback(), self._store() as broker:
            for batch in batches:
                texts = batch.column(0).to_pylist()
                for start in range(0, len(texts), _AT_ONCE):
                    self._replay_rows(texts[start : start + _AT_ONCE], broker, done)
        answer = arrow.array([msgspec.json.encode(done).decode()], arrow.string())
        yield arrow.RecordBatch.from_arrays([answer], ["answer"])

    @contextmanager
    def _store(self) -> Generator[Broker | None]:
        if self._dry_run:
            yield None
            return
        store = named_store(self._profile)
        with opened_store(store.url) as opened:
            sealing = self._key is not None
            yield sealed_store(opened, find_keys(store), self._key, "") if sealing else opened

    def _replay_rows(self, texts: list[str], broker: Broker | None, done: Replayed) -> None:
        copies: list[Job[Any]] = []
        for text in texts:
            origin = msgspec.json.decode(text, type=Origin)
            reason = unfit(origin, self._sealed)
            if reason is None:
                copies.append(replayed_job(origin, self._name))
                continue
            done.refused += 1
            if done.refused <= _MOST_REASONS:
                done.reasons[origin.job] = reason
        known = len(broker.enqueue(copies).known) if broker is not None and copies else 0
        done.found += len(texts)
        done.known += known
        done.enqueued += len(copies) - known


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _apps_without_key(broker: Broker | None) -> frozenset[str]:
    """The apps whose jobs are encrypted in the store, and have no key here."""
    if broker is None or isinstance(broker, EncryptedBroker):
        return frozenset()
    return broker.traits.sealed_apps()


def unfit(origin: Origin, sealed: Collection[str] = ()) -> str | None:
    """Why a job cannot be replayed; None if it can. `sealed` are apps that have no key here."""
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
    return _no_key(origin.arguments, origin.app or "", sealed)


def _no_key(arguments: str, app: str, sealed: Collection[str]) -> str | None:
    if is_sealed(arguments.encode()):
        return "its arguments are encrypted"
    return f"its app encrypts its jobs, and {NO_KEYS}" if app in sealed else None


def replayed_job(origin: Origin, name: str) -> Job[Any]:
    """A new job with the original's arguments, headers, key and tags."""
    headers: dict[str, str] = msgspec.json.decode(origin.headers) if origin.headers else {}
    body = {
        "args": msgspec.Raw((origin.arguments or "{}").encode()),
        "headers": {**headers, ORIGIN: origin.job, NAME: name},
    }
    return Job(
        app=origin.app or "",
        id=lasting_id("replay", name, origin.job, bucket=origin.key),
        task=origin.task,
        queue=origin.queue,
        version=origin.version,
        priority=origin.priority,
        key=origin.key,
        tags=origin.tags,
        body=msgspec.json.encode(body),
    )
