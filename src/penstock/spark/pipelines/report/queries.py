"""Answers: everything a report says, worked out by Spark and gathered as plain values.

The page, the terminal and programs all show these, so that they cannot differ. Times are seconds
since the epoch, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql.functions import col, count, percentile_approx, unix_micros
from pyspark.sql.functions import max as maximum
from pyspark.sql.functions import min as minimum
from pyspark.sql.functions import sum as total
from pyspark.sql.types import TimestampType

from penstock.spark.pipelines.datasets.clean_attempts import DAY, HOUR, MINUTE, clean
from penstock.spark.pipelines.datasets.failures import failures
from penstock.spark.pipelines.datasets.flows import critical_path, flows, slow_steps, steps
from penstock.spark.pipelines.datasets.forecast import forecast
from penstock.spark.pipelines.datasets.queue_depth import depth
from penstock.spark.pipelines.datasets.schedule_delay import punctuality
from penstock.spark.pipelines.datasets.throughput import by_tag, load
from penstock.spark.pipelines.datasets.worker_use import worker_use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
Told = Callable[[str, int, int], None]

_STRETCHES = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY)
_POINTS = 180  # more than that nobody can tell apart
MOST = 50  # rows of a table that people read


class Frames(NamedTuple):
    """What answers are made of: the raw tables, and the jobs that were open at their end."""

    attempts: DataFrame
    events: DataFrame
    gauges: DataFrame
    open_jobs: DataFrame | None = None


class Answers(msgspec.Struct, kw_only=True):
    """What a report says."""

    source: str = ""  # "store" or "lake"
    where: str = ""  # which one
    gaps: list[Row] = []  # history that the lake misses, as its manifest says
    made_at: float = 0.0
    first_at: float | None = None  # the first and the last attempt that ended; None: there is none
    last_at: float | None = None
    every: int = MINUTE  # what stands under `at` lasts so many seconds
    total: Row = {}
    over_time: list[Row] = []  # by queue, of the busiest
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


def answer(frames: Frames, told: Told) -> Answers:
    """Work it all out; `told` hears what is asked now, its number, and how many there are."""
    attempts = clean(frames.attempts)
    [ends] = _rows(
        attempts.agg(
            minimum("ended_at").alias("first"), maximum("ended_at").alias("last"), count("*")
        )
    )
    answers = Answers(first_at=ends["first"], last_at=ends["last"])
    answers.every = stretch_for((ends["last"] or 0) - (ends["first"] or 0))
    every = answers.every
    shown = _busiest(attempts)
    found = steps(attempts)
    paths, each_flow = critical_path(found), flows(found)
    questions: list[tuple[str, Callable[[], list[Row]]]] = [
        ("total", lambda: _rows(load(attempts))),
        ("over_time", lambda: _rows(load(shown(attempts), "queue", every=every), "at", "queue")),
        ("tasks", lambda: _most(load(attempts, "queue", "task", "version"), "busy")),
        ("tags", lambda: _most(load(by_tag(attempts), "tag", "value"), "attempts")),
        ("failures", lambda: _most(failures(attempts), "attempts")),
        ("depth", lambda: _rows(depth(shown(frames.gauges), every), "at", "queue")),
        ("open_jobs", lambda: _open(frames.open_jobs)),
        ("schedules", lambda: _most(punctuality(frames.events, attempts), "late_longest")),
        ("flows", lambda: _most(_kinds(each_flow), "flows")),
        ("steps", lambda: _most(slow_steps(paths, each_flow), "spent")),
        ("workers", lambda: _most(_workers(attempts), "busy")),
        (
            "forecast",
            lambda: _most(forecast(load(attempts, "queue", every=HOUR)), "slots"),
        ),
    ]
    for number, (name, ask) in enumerate(questions):
        told(name.replace("_", " "), number + 1, len(questions))
        rows = ask()
        setattr(answers, name, rows[0] if name == "total" else rows)
    return answers


def stretch_for(span: float) -> int:
    """How long a point of a plot over this span stands for."""
    return next((each for each in _STRETCHES if span / each <= _POINTS), _STRETCHES[-1])


def _busiest(attempts: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Leaves the rows of the busiest queues: with a queue per customer there would be no end."""
    counted = attempts.groupBy("queue").count().orderBy(col("count").desc(), "queue")
    queues = [row["queue"] for row in counted.limit(MOST).collect()]
    if len(queues) < MOST:
        return lambda frame: frame
    return lambda frame: frame.where(col("queue").isin(queues))


def _open(jobs: DataFrame | None) -> list[Row]:
    return [] if jobs is None else _most(jobs, "ready")


def _kinds(each_flow: DataFrame) -> DataFrame:
    return each_flow.groupBy("kind").agg(
        count("*").alias("flows"),
        total((col("bad") > 0).cast("bigint")).alias("bad"),
        percentile_approx("elapsed", 0.5, 10_000).alias("elapsed_p50"),
        percentile_approx("elapsed", 0.95, 10_000).alias("elapsed_p95"),
        maximum("elapsed").alias("elapsed_longest"),
    )


def _workers(attempts: DataFrame) -> DataFrame:
    return (
        worker_use(attempts, HOUR)
        .groupBy("worker")
        .agg(
            total("attempts").alias("attempts"),
            total("busy").alias("busy"),
            count("*").alias("hours"),
            maximum("at_a_time").alias("at_a_time"),
            minimum("at").alias("first_at"),
            maximum("at").alias("last_at"),
        )
    )


def _most(frame: DataFrame, by: str) -> list[Row]:
    """The rows with the most of it, so many as people read."""
    order = col(by).desc_nulls_last()
    rest = [col(name) for name in frame.columns if name != by]
    return _rows(frame.orderBy(order, *rest).limit(MOST))


def _rows(frame: DataFrame, *order: str) -> list[Row]:
    if order:
        frame = frame.orderBy(*order)
    columns: Sequence[Any] = [
        (unix_micros(field.name) / 1_000_000).alias(field.name)
        if isinstance(field.dataType, TimestampType)
        else col(field.name)
        for field in frame.schema.fields
    ]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]
