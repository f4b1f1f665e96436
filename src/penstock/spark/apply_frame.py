"""DataFrame in, DataFrame out, through durable jobs: `apply(df, score, id="id", name="june")`.

All state is in the store: a job's id is derived from the name and its row's id, so another call
with the same name, from any process, waits for the same jobs. Each has a hash of its arguments,
which is compared with that of the row: a result never stands beside other arguments.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.app.encrypted_broker import encrypted
from penstock.app.key_file import find_keys
from penstock.app.settings import mask
from penstock.broker.protocol import Broker
from penstock.errors import Refused, ResultGone
from penstock.job import ENDED, State
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.spark.connect import profile_of
from penstock.spark.one_sentence import one_sentence
from penstock.spark.row_ids import CHANGED, GONE, check_on_change, jobs_of_rows, row_id
from penstock.spark.session import make_active, say
from penstock.spark.session_store import check_keys, named_store, opened_store, store_of
from penstock.task.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID = "penstock_row"  # a temporary column
RESULT = ("result", "error", "attempt")
_STATE, _JSON, _HASH = "penstock_state", "penstock_json", "penstock_hash"  # temporary columns
Lookup = Callable[[Iterator[Any]], Iterator[Any]]
_SPARK_FILES = re.compile(r"_SUCCESS|_temporary|part-.*|\..*\.crc")  # in a folder that Spark wrote
_REASON = "penstock.spark.apply"
_POLL_SECONDS = 0.5
_LOOKED_UP = 1000  # rows whose jobs are looked up by one call
_PROGRESS_SECONDS = 5.0
_ROWS_SECONDS = 30.0  # how often rows are checked while the task has other open jobs


@one_sentence()
def apply(
    frame: DataFrame,
    task: Task[..., Any],
    *,
    id: str,
    name: str,
    on_change: Literal["refuse", "again", "keep"] = "refuse",
    rate: str | None = None,
    into: str | None = None,
    arguments: Sequence[str] | None = None,
) -> DataFrame:
    """Call the task once for each row, as a job; returns the rows with their results.

    `id` names the column that identifies a row: under one `name`, a row that is done is not called
    again, not even by a later process. If its arguments or the task's version are other than at
    that time, `on_change` decides: "refuse" raises, "again" calls it again, "keep" gives the result
    there is. Declared secrets are not compared.

    Columns that are parameters of the task are its arguments, or those that `arguments` names.
    `rate` ("500/s") limits the task over all workers while this call lasts.
    The columns `result`, of the type that the task returns, `error` and `attempt` are added; with
    `into` the rows are written there as Parquet, and read from there.

    Waits until the jobs of all rows have ended. If it is interrupted or killed, the jobs go on.
    """
    from penstock.spark.sink.rows_to_jobs import template_text

    spark = frame.sparkSession
    make_active(spark)
    _check(frame, task, id, into)
    check_on_change(on_change)
    if not name.strip():
        raise Refused("name is empty: it tells this apply from other ones of the task")
    app = task.app
    names = arguments
    if names is None:
        names = [name for name in frame.columns if name in task.codec.kinds]
    _check_columns(frame, task, id, names)
    reason = f"{_REASON}, {secrets.token_hex(4)}"
    if rate is not None:
        _limit(task, rate, reason)
    template = template_text(task)
    frame = _with_hash(frame, [each for each in names if each not in _secrets(template)])
    writer = frame.write.format("penstock").option("task", task.name).option("id_column", id)
    writer = writer.option("write", name).option("on_change", on_change)
    writer = writer.option("hash_column", _HASH)
    # Not the option `app`: this may be a notebook, which executors cannot import.
    writer = writer.option("recipe", template).option("arguments", ",".join(names))
    writer.mode("append").save()
    lookup = _lookup(task, name, profile_of(spark), keep=on_change == "keep")
    _await_all(app.broker, frame, task, id, lookup)
    if rate is not None and not _open_jobs(app.broker, task):
        _end_limit(task, reason)
    results = _typed(_looked_up(frame, id, lookup), task)
    if into is None:
        return results
    results.write.mode("overwrite").parquet(into)
    return spark.read.parquet(into)


def _check(frame: DataFrame, task: Any, id: str, into: str | None) -> None:
    """Refuse what cannot work, before anything is enqueued."""
    if not isinstance(task, Task):
        raise Refused(f"{task!r} is no task: pass a function decorated with @app.task")
    url = store_of(frame.sparkSession)
    if task.app.resolved_url.url != url:
        raise Refused(
            f"the app's store is {mask(task.app.resolved_url.url)}, the session's {mask(url)}:"
            " call penstock.spark.attach(spark, url=...) with the app's URL"
        )
    check_keys(frame.sparkSession, task.app.keys)
    if id not in frame.columns:
        raise Refused(f"id={id!r}: the frame has no such column; there are {frame.columns}")
    # Column names are case-insensitive in Spark.
    if taken := [name for name in frame.columns if name.lower() in {*RESULT, _STATE, _JSON, _HASH}]:
        raise Refused(f"the result has a column {taken[0].lower()!r}: rename that of the frame")
    for strategy in ("on_success", "on_error", "on_timeout"):
        if getattr(task.policy, strategy) == "delete":
            raise Refused(f'{task.name} has {strategy}="delete": its results would be gone')
    if into is not None:
        _check_folder(frame, into)


def _check_folder(frame: DataFrame, into: str) -> None:
    """Refuse to overwrite anything but earlier results: Spark would delete all that is there."""
    folder = Path(into)
    if folder.is_file():
        raise Refused(f"into={into!r} is a file: name a folder for the results")
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if not _SPARK_FILES.fullmatch(path.name):
                raise Refused(
                    f"into={into!r} holds {path.name}, and all of it would be overwritten: name a"
                    " folder for the results alone"
                )
        if any(file.startswith(f"{folder.absolute().as_uri()}/") for file in frame.inputFiles()):
            raise Refused(f"into={into!r} is what the frame is read from: name another folder")


def _check_columns(frame: DataFrame, task: Task[..., Any], id: str, names: Sequence[str]) -> None:
    """Refuse columns that do not fit the task's parameters."""
    from penstock.spark.sink.column_roles import lay_out
    from penstock.spark.sink.options import SinkOptions

    options = SinkOptions(task=task.name, columns={"id": id}, arguments=tuple(names))
    lay_out(frame.schema, options, task.app)


def _limit(task: Task[..., Any], rate: str, reason: str) -> None:
    """Limit the task; refused if it has a limit that is not from `apply`."""
    limit = _current_limit(task)
    if limit is not None and not limit.reason.startswith(_REASON):
        raise Refused(f"{task.name} already has a limit: leave out rate={rate!r}")
    task.app.limit(task=task, rate=rate, reason=reason)


def _end_limit(task: Task[..., Any], reason: str) -> None:
    """Remove the limit, unless another `apply` has replaced it since."""
    limit = _current_limit(task)
    if limit is not None and limit.reason == reason:
        task.app.broker.clear(Rule, rule_id(RuleKind.LIMIT, task=task.name))


def _current_limit(task: Task[..., Any]) -> Rule | None:
    for rule in task.app.broker.records(Rule):
        target = (rule.kind, rule.queue, rule.task, rule.per_key)
        if target == (RuleKind.LIMIT, None, task.name, False):
            return rule
    return None


def _open_jobs(broker: Broker, task: Task[..., Any]) -> int:
    """How many jobs of the task have not ended."""
    return sum(
        count.total
        for count in broker.count()
        if (count.task, count.app) == (task.name, task.app_name)
    )


def _secrets(template: str) -> list[str]:
    """The arguments that a task's template declares secret."""
    from penstock.spark.sink.rows_to_jobs import JobTemplate

    options = msgspec.json.decode(msgspec.json.decode(template, type=JobTemplate).options)
    return options.get("secret", [])


def _with_hash(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The frame with a hash of the arguments of each row, made by Spark: it is needed twice."""
    from pyspark.sql import functions

    text = functions.lit("")
    if names:
        values = functions.struct(*map(_quoted, sorted(names)))
        text = functions.to_json(values, {"timeZone": "UTC"})
    return frame.withColumn(_HASH, functions.substring(functions.sha2(text, 256), 1, 16))


def _await_all(
    broker: Broker, frame: DataFrame, task: Task[..., Any], id: str, lookup: Lookup
) -> None:
    """Return when the job of every row has ended."""
    from pyspark.sql.functions import col

    ids = frame.select(_quoted(id), _HASH)
    rows = ids.select(_quoted(id)).distinct().count()
    progress_at = rows_at = time.monotonic()
    workers = [worker for worker in broker.workers() if worker.app == task.app_name]
    if not any(task.name in worker.tasks for worker in workers):
        say(f"no worker runs {task.name} yet: start one with penstock worker")
    while True:
        now = time.monotonic()
        left = _open_jobs(broker, task)
        if left == 0 or now - rows_at >= _ROWS_SECONDS:
            rows_at = now
            missing = col(_STATE).isNull() | col(_STATE).isin(GONE, CHANGED)
            open_rows = _looked_up(ids, id, lookup).where(missing).take(1)
            if not open_rows:
                say(f"{rows:,} rows ended")
                return
            if open_rows[0][_STATE] == GONE:
                raise ResultGone(
                    f"the store no longer has the job of row {id}={open_rows[0][id]!r}: it was"
                    f" deleted, or its result was kept only for the retention of {task.name}"
                    " (keep=); under another name the row is called again"
                )
            if open_rows[0][_STATE] == CHANGED:
                raise Refused(_not_the_same(f"row {id}={open_rows[0][id]!r}"))
        if now - progress_at >= _PROGRESS_SECONDS:
            progress_at = now
            say(f"{max(0, rows - left):,} of {rows:,} rows ended")
        time.sleep(_POLL_SECONDS)


def _looked_up(frame: DataFrame, id: str, lookup: Lookup) -> DataFrame:
    """The rows with state and result of their jobs; the state is null while a job is open."""
    from pyspark.sql import types

    # Names of our own meanwhile: mapInArrow takes a dot in one for a field of a struct.
    own = {id: _ID, _HASH: _HASH}
    renamed = frame.toDF(*(own.get(name, f"c{n}") for n, name in enumerate(frame.columns)))
    schema = types.StructType(
        [
            *renamed.schema.fields,
            types.StructField(_STATE, types.StringType()),
            types.StructField(_JSON, types.StringType()),
            types.StructField("error", types.StringType()),
            types.StructField("attempt", types.IntegerType()),
        ]
    )
    untyped: Any = renamed
    looked_up = untyped.mapInArrow(lookup, schema)
    return looked_up.toDF(*frame.columns, *looked_up.columns[len(frame.columns) :])


def _lookup(task: Task[..., Any], name: str, profile: str | None, *, keep: bool) -> Lookup:
    # Not the task itself, which the function below would take along to executors.
    task_name, version, app = task.name, task.version, task.app_name

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        store = named_store(profile)
        with opened_store(store.url) as opened:
            broker = encrypted(opened, find_keys(store))
            for batch in batches:
                for start in range(0, batch.num_rows, _LOOKED_UP):
                    page = batch.slice(start, _LOOKED_UP)
                    values, hashes = (page.column(each).to_pylist() for each in (_ID, _HASH))
                    ids = [row_id(task_name, value, name=name, app=app) for value in values]
                    rows = list(zip(ids, hashes, strict=True))
                    jobs = jobs_of_rows(broker, rows, version, keep=keep)
                    yield _with_columns(page, [_found(job) for job in jobs])

    return look


def _found(job: Any) -> tuple[str | None, str | None, str | None, int | None]:
    """State, result, error and attempt of a job."""
    if isinstance(job, str):
        return job, None, _not_the_same("the row") if job == CHANGED else None, None
    if job.state not in ENDED:
        return None, None, None, None
    succeeded = job.state is State.SUCCEEDED
    result = b"null" if job.result is None else job.result
    json = b'{"result":%b}' % result if succeeded else b"{}"
    error = None if succeeded else (job.error or job.reason)
    return str(job.state), json.decode(), error, job.attempt


def _with_columns(batch: Any, found: list[tuple[Any, ...]]) -> Any:
    from penstock.spark.untyped_arrow import arrow

    kinds = (arrow.string(), arrow.string(), arrow.string(), arrow.int32())
    columns = zip(*found, strict=True)
    added = [arrow.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    names = [*batch.schema.names, _STATE, _JSON, "error", "attempt"]
    return arrow.RecordBatch.from_arrays([*batch.columns, *added], names)


def _not_the_same(row: str) -> str:
    return (
        f"{row} has other arguments each time it is read: persist() the DataFrame, or write it to"
        " a table first"
    )


def _typed(frame: DataFrame, task: Task[..., Any]) -> DataFrame:
    from pyspark.sql import functions, types

    from penstock.spark.result_types import type_of

    schema = types.StructType([types.StructField("result", type_of(task.results.annotation))])
    typed = frame.withColumn("result", functions.from_json(_JSON, schema)["result"])
    own = [_quoted(name) for name in frame.columns if name not in {_STATE, _JSON, _HASH, *RESULT}]
    return typed.select(*own, *RESULT)


def _quoted(name: str) -> str:
    """A column's name in backquotes: a dot in it would mean a field of a struct."""
    return "`{}`".format(name.replace("`", "``"))
