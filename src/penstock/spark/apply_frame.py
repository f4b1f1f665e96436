"""Frame in, frame out, through durable jobs: `penstock.spark.apply(df, score, id="id")`.

All state is in the store: a row's job has an id derived from the row's own, so whoever applies the
same task to the same rows again, from whatever process, waits for the same jobs. What is kept here
is only patience.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.app.settings import mask
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused, ResultGone
from penstock.job import ENDED, State
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.spark.row_ids import row_id
from penstock.spark.session import make_active
from penstock.spark.session_store import named_store, store_of
from penstock.task.task import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULT = ("result", "error", "attempt")
_STATE, _JSON = "penstock_state", "penstock_json"  # of what is looked up, beside the frame's own
_GONE = "gone"  # in place of a state: the store has no such job
_ANSWER = re.compile(r"_SUCCESS|_temporary|part-.*|\..*\.crc")  # what Spark leaves in a folder
_REASON = "penstock.spark.apply"
_LOOK_SECONDS = 0.5
_SAY_SECONDS = 5.0
_EVERY_SECONDS = 30.0  # then the rows themselves are looked at, whatever else the task has to do


def apply(
    frame: DataFrame,
    task: Task[..., Any],
    *,
    id: str,
    rate: str | None = None,
    into: str | None = None,
    arguments: Sequence[str] | None = None,
) -> DataFrame:
    """Call the task once for each row, as a job, and give the rows with what became of them.

    `id` names the column that tells rows apart: a row whose job has ended is not called again, also
    not by a later process. Columns that are parameters of the task are its arguments, or those that
    `arguments` names. `rate` ("500/s") is a limit over all workers, while this lasts. The answer
    has the columns `result`, of the type that the task returns, `error` and `attempt` beside the
    frame's own; with `into` it is written there, as Parquet, and read again.

    It waits until all rows ended. Interrupted, or killed, it leaves the jobs to the workers.
    """
    from penstock.spark.sink.rows_to_jobs import recipe_text

    spark = frame.sparkSession
    make_active(spark)
    _check(frame, task, id, into)
    app = task.app
    names = arguments
    if names is None:
        names = [name for name in frame.columns if name in task.codec.kinds]
    _check_columns(frame, task, id, names)
    reason = f"{_REASON}, {secrets.token_hex(4)}"
    if rate is not None:
        _limit(task, rate, reason)
    writer = frame.write.format("penstock").option("task", task.name).option("id_column", id)
    # Not the app: what runs here may be a notebook, and no executor can import that.
    writer = writer.option("recipe", recipe_text(task)).option("arguments", ",".join(names))
    writer.mode("append").save()
    _await_all(app.broker, frame, task, id)
    if rate is not None and not _open(app.broker, task):
        _end_limit(task, reason)
    answer = _typed(_looked_up(frame, task, id), task)
    if into is None:
        return answer
    answer.write.mode("overwrite").parquet(into)
    return spark.read.parquet(into)


def _check(frame: DataFrame, task: Any, id: str, into: str | None) -> None:
    """Refuse what cannot be answered, before anything is enqueued."""
    if not isinstance(task, Task):
        raise Refused(f"{task!r} is no task: give what @app.task made of the function")
    url = store_of(frame.sparkSession)
    if task.app.resolved_url.url != url:
        raise Refused(
            f"the app's store is {mask(task.app.resolved_url.url)}, the session's {mask(url)}:"
            " penstock.spark.attach(spark, url=...) with the app's"
        )
    if id not in frame.columns:
        raise Refused(f"id={id!r}: the frame has no such column; there are {frame.columns}")
    # Spark does not tell Result from result.
    if taken := [name for name in frame.columns if name.lower() in {*RESULT, _STATE, _JSON}]:
        raise Refused(f"the answer has a column {taken[0].lower()!r}; rename the frame's own")
    for strategy in ("on_success", "on_error", "on_timeout"):
        if getattr(task.policy, strategy) == "delete":
            raise Refused(f'{task.name} has {strategy}="delete": nothing would be left to answer')
    if into is not None:
        _check_place(frame, into)


def _check_place(frame: DataFrame, into: str) -> None:
    """Refuse to overwrite what is no earlier answer: Spark would remove whatever is there."""
    place = Path(into)
    if place.is_file():
        raise Refused(f"into={into!r} is a file: name a folder for the answer")
    if place.is_dir():
        for found in sorted(place.iterdir()):
            if not _ANSWER.fullmatch(found.name):
                raise Refused(
                    f"into={into!r} holds {found.name}, and all of it would be overwritten: name a"
                    " folder for the answer alone"
                )
        if any(file.startswith(f"{place.absolute().as_uri()}/") for file in frame.inputFiles()):
            raise Refused(f"into={into!r} is what the frame is read from: name another folder")


def _check_columns(frame: DataFrame, task: Task[..., Any], id: str, names: Sequence[str]) -> None:
    """Refuse columns that are no arguments of the task."""
    from penstock.spark.sink.column_roles import lay_out
    from penstock.spark.sink.options import SinkOptions

    options = SinkOptions(task=task.name, columns={"id": id}, arguments=tuple(names))
    lay_out(frame.schema, options, task.app)


def _limit(task: Task[..., Any], rate: str, reason: str) -> None:
    """Limit the task, unless somebody else did: their limit must not end with our patience."""
    standing = _standing(task)
    if standing is not None and not standing.reason.startswith(_REASON):
        raise Refused(f"{task.name} has a limit of its own already; leave out rate={rate!r}")
    task.app.limit(task=task, rate=rate, reason=reason)


def _end_limit(task: Task[..., Any], reason: str) -> None:
    """Take the limit back, unless another `apply` has put its own there since."""
    standing = _standing(task)
    if standing is not None and standing.reason == reason:
        task.app.broker.clear(Rule, rule_id(RuleKind.LIMIT, task=task.name))


def _standing(task: Task[..., Any]) -> Rule | None:
    for rule in task.app.broker.records(Rule):
        named = (rule.kind, rule.queue, rule.task, rule.per_key)
        if named == (RuleKind.LIMIT, None, task.name, False):
            return rule
    return None


def _open(broker: Broker, task: Task[..., Any]) -> int:
    """How many jobs of the task have not ended."""
    named = (task.name, task.app_name)
    return sum(count.total for count in broker.count() if (count.task, count.app) == named)


def _await_all(broker: Broker, frame: DataFrame, task: Task[..., Any], id: str) -> None:
    """Return when the job of every row has ended."""
    from pyspark.sql.functions import col

    ids = frame.select(_quoted(id))
    rows = ids.distinct().count()
    said = looked = time.monotonic()
    workers = [worker for worker in broker.workers() if worker.app == task.app_name]
    if not any(task.name in worker.tasks for worker in workers):
        _say(f"no worker runs {task.name} yet: start one, `penstock worker`")
    while True:
        now = time.monotonic()
        left = _open(broker, task)
        if left == 0 or now - looked >= _EVERY_SECONDS:
            looked = now
            missing = col(_STATE).isNull() | (col(_STATE) == _GONE)
            open_rows = _looked_up(ids, task, id).where(missing).take(1)
            if not open_rows:
                _say(f"{rows:,} rows ended")
                return
            if open_rows[0][_STATE] == _GONE:
                raise ResultGone(
                    f"the job of row {id}={open_rows[0][id]!r} is not kept any more: it was"
                    f" deleted, or {task.name} keeps what ended for too short a time"
                )
        if now - said >= _SAY_SECONDS:
            said = now
            _say(f"{max(0, rows - left):,} of {rows:,} rows ended")
        time.sleep(_LOOK_SECONDS)


def _looked_up(frame: DataFrame, task: Task[..., Any], id: str) -> DataFrame:
    """The rows with what became of their jobs; the state is null where that is still open."""
    from pyspark.sql import types

    found = types.StructType(
        [
            *frame.schema.fields,
            types.StructField(_STATE, types.StringType()),
            types.StructField(_JSON, types.StringType()),
            types.StructField("error", types.StringType()),
            types.StructField("attempt", types.IntegerType()),
        ]
    )
    rows: Any = frame.rdd
    spark: Any = frame.sparkSession
    # Not mapInArrow, which needs pandas: a look at the store takes longer than the way of a row.
    looked_up = rows.mapPartitions(_lookup(task.name, task.app_name, id))
    return spark.createDataFrame(looked_up, found, verifySchema=False)


def _lookup(task: str, app: str, id: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def look(rows: Iterator[Any]) -> Iterator[Any]:
        broker = open_broker(named_store().url, create=False)
        try:
            for row in rows:
                job = broker.get(row_id(task, row[id], app=app))
                if job is None or job.state not in ENDED:
                    yield (*row, _GONE if job is None else None, None, None, None)
                    continue
                good = job.state is State.SUCCEEDED
                result = b"null" if job.result is None else job.result
                json = b'{"result":%b}' % result if good else b"{}"
                error = None if good else (job.error or job.reason)
                yield (*row, str(job.state), json.decode(), error, job.attempt)
        finally:
            broker.close()

    return look


def _typed(frame: DataFrame, task: Task[..., Any]) -> DataFrame:
    from pyspark.sql import functions, types

    from penstock.spark.result_types import type_of

    wanted = types.StructType([types.StructField("result", type_of(task.results.annotation))])
    typed = frame.withColumn("result", functions.from_json(_JSON, wanted)["result"])
    own = [_quoted(name) for name in frame.columns if name not in {_STATE, _JSON, *RESULT}]
    return typed.select(*own, *RESULT)


def _quoted(name: str) -> str:
    """A column as Spark takes it: one with a dot would be a field of another."""
    return "`{}`".format(name.replace("`", "``"))


def _say(text: str) -> None:
    sys.stderr.write(f"penstock: {text}\n")
    sys.stderr.flush()
