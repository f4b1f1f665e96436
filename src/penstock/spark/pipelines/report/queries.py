"""The report's queries: everything that a report shows, computed by Spark, as plain values.

The page, the terminal and `--json` all show these values, so they cannot differ. Times are seconds
since the epoch, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from penstock.spark.pipelines.datasets.clean_attempts import DAY, HOUR, MINUTE, clean
from penstock.spark.pipelines.datasets.failures import failures
from penstock.spark.pipelines.datasets.flows import critical_path, flows, slow_steps, steps
from penstock.spark.pipelines.datasets.forecast import forecast
from penstock.spark.pipelines.datasets.queue_depth import depth
from penstock.spark.pipelines.datasets.schedule_delay import schedule_delay
from penstock.spark.pipelines.datasets.throughput import by_tag, load
from penstock.spark.pipelines.datasets.worker_use import worker_use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
OnProgress = Callable[[str, int, int], None]

_INTERVALS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY)
_POINTS = 180  # of a plot, at most
MOST = 50  # rows of a table


class Frames(NamedTuple):
    """What the queries read: the raw tables, and the jobs that were open at their end."""

    attempts: DataFrame
    events: DataFrame
    gauges: DataFrame
    open_jobs: DataFrame | None = None


class ReportData(msgspec.Struct, kw_only=True):
    """What a report shows."""

    source: str = ""  # "store" or "lake"
    where: str = ""  # which one
    gaps: list[Row] = []  # the gaps in the lake's manifest
    made_at: float = 0.0
    first_at: float | None = None  # end of the first and of the last attempt
    last_at: float | None = None
    every: int = MINUTE  # seconds of the interval that begins with `at`
    total: Row = {}
    over_time: list[Row] = []  # by queue, the busiest ones
    tasks: list[Row] = []  # by queue, task and version
    tags: list[Row] = []
    failures: list[Row] = []
    depth: list[Row] = []
    open_jobs: list[Row] = []  # by queue, at the end of this history
    schedules: list[Row] = []
    flows: list[Row] = []  # by kind
    steps: list[Row] = []  # by kind and task
    workers: list[Row] = []
    forecast: list[Row] = []


def query_report(frames: Frames, on_progress: OnProgress) -> ReportData:
    """Run every query; `on_progress` is called before each: its name, number, and their count."""
    attempts = clean(frames.attempts)
    [ends] = _rows(
        attempts.agg(
            F.min("ended_at").alias("first"), F.max("ended_at").alias("last"), F.count("*")
        )
    )
    data = ReportData(first_at=ends["first"], last_at=ends["last"])
    data.every = interval_for((ends["last"] or 0) - (ends["first"] or 0))
    every = data.every
    of_busiest = _busiest(attempts)
    flow_steps = steps(attempts)
    paths, per_flow = critical_path(flow_steps), flows(flow_steps)
    queries: list[tuple[str, Callable[[], list[Row]]]] = [
        ("total", lambda: _rows(load(attempts))),
        (
            "over_time",
            lambda: _rows(load(of_busiest(attempts), "queue", every=every), "at", "queue"),
        ),
        ("tasks", lambda: _most(load(attempts, "queue", "task", "version"), "busy")),
        ("tags", lambda: _most(load(by_tag(attempts), "tag", "value"), "attempts")),
        ("failures", lambda: _most(failures(attempts), "attempts")),
        ("depth", lambda: _rows(depth(of_busiest(frames.gauges), every), "at", "queue")),
        ("open_jobs", lambda: _open(frames.open_jobs)),
        ("schedules", lambda: _most(schedule_delay(frames.events, attempts), "late_longest")),
        ("flows", lambda: _most(_kinds(per_flow), "flows")),
        ("steps", lambda: _most(slow_steps(paths, per_flow), "spent")),
        ("workers", lambda: _most(_workers(attempts), "busy")),
        (
            "forecast",
            lambda: _most(forecast(load(attempts, "queue", every=HOUR)), "slots"),
        ),
    ]
    for number, (name, query) in enumerate(queries):
        on_progress(name.replace("_", " "), number + 1, len(queries))
        rows = query()
        setattr(data, name, rows[0] if name == "total" else rows)
    return data


def interval_for(span: float) -> int:
    """The seconds that one point of a plot over this span covers."""
    return next((size for size in _INTERVALS if span / size <= _POINTS), _INTERVALS[-1])


def _busiest(attempts: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """A filter that leaves the busiest queues: there may be a queue per customer."""
    counted = attempts.groupBy("queue").count().orderBy(F.col("count").desc(), "queue")
    queues = [row["queue"] for row in counted.limit(MOST).collect()]
    if len(queues) < MOST:
        return lambda frame: frame
    return lambda frame: frame.where(F.col("queue").isin(queues))


def _open(jobs: DataFrame | None) -> list[Row]:
    return [] if jobs is None else _most(jobs, "ready")


def _kinds(per_flow: DataFrame) -> DataFrame:
    return per_flow.groupBy("kind").agg(
        F.count("*").alias("flows"),
        F.sum((F.col("bad") > 0).cast("bigint")).alias("bad"),
        F.percentile_approx("elapsed", 0.5, 10_000).alias("elapsed_p50"),
        F.percentile_approx("elapsed", 0.95, 10_000).alias("elapsed_p95"),
        F.max("elapsed").alias("elapsed_longest"),
    )


def _workers(attempts: DataFrame) -> DataFrame:
    return (
        worker_use(attempts, HOUR)
        .groupBy("worker")
        .agg(
            F.sum("attempts").alias("attempts"),
            F.sum("busy").alias("busy"),
            F.count("*").alias("hours"),
            F.max("at_a_time").alias("at_a_time"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
    )


def _most(frame: DataFrame, by: str) -> list[Row]:
    """The rows with the highest value in the column `by`."""
    order = F.col(by).desc_nulls_last()
    rest = [F.col(name) for name in frame.columns if name != by]
    return _rows(frame.orderBy(order, *rest).limit(MOST))


def _rows(frame: DataFrame, *order: str) -> list[Row]:
    if order:
        frame = frame.orderBy(*order)
    columns: Sequence[Any] = [
        (F.unix_micros(field.name) / 1_000_000).alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else F.col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]
