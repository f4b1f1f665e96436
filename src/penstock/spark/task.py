"""Spark tasks: `@app.task(spark=True)` over `def daily(spark: SparkSession, day: date)`.

The session is no argument of the job: it is made where the task runs, once per process. All that a
job starts on Spark is in one Spark job group: an exception cannot be raised in a thread that waits
for the JVM, so interrupting the job cancels the group instead.

A detached job has a process, and so a Spark application, of its own: it is noted with the job, its
progress is reported, and it is interrupted as a whole.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Refused
from penstock.run.current import CURRENT, CurrentJob
from penstock.spark.application import (
    KIND,
    NAME,
    application_of,
    kill_earlier,
    last_application,
    name_of,
)
from penstock.spark.connect import is_connect
from penstock.spark.lineage import job_lineage
from penstock.spark.session import make_active, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.app.app import App

MASTER = "PENSTOCK_SPARK_MASTER"
_CALLBACK = "_call_proxy"  # the function of py4j under which callbacks from the JVM run


def spark_function(
    app: App, function: Callable[..., Any], given: object, *, detached: bool = False
) -> Callable[..., Any]:
    """The function without its first parameter, which is set to a session at each call.

    `given` is the option `spark=`: True for `penstock.spark.session()`, or your own factory.
    """
    what = f"@app.task(spark=...) over {function.__qualname__}"
    if inspect.iscoroutinefunction(function):
        raise Refused(
            f"{what}: Spark blocks, and would hold up the event loop; make it a plain def"
        )
    if given is not True and not callable(given):
        raise Refused(f"{what}: spark={given!r} must be True, or a function that makes the session")
    signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()), None)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if first is None or first.kind not in by_position or first.default is not first.empty:
        raise Refused(
            f"{what}: its first parameter must be the session, as (spark: SparkSession, ...)"
        )
    factory: Any = app.spark_session if given is True else given

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        current = CURRENT.get()
        with job_lineage(app, current, "TASK"):
            if detached and current is not None:
                with own_application(app, current, factory) as spark:
                    return function(spark, *args, **kwargs)
            spark = app.resources.open(factory)
            make_active(spark)  # another thread may have made it
            with job_group(spark, function.__qualname__):
                return function(spark, *args, **kwargs)

    rest = [other for other in signature.parameters.values() if other is not first]
    call.__signature__ = signature.replace(parameters=rest)  # pyright: ignore[reportAttributeAccessIssue]  inspect reads it
    call.__annotations__ = {
        name: kind for name, kind in function.__annotations__.items() if name != first.name
    }
    return call


@contextmanager
def job_group(spark: SparkSession, function: str) -> Generator[None]:
    """Spark jobs that this thread starts in the block are cancelled together with its job."""
    from penstock.worker.interrupt import also_interrupt

    current = CURRENT.get()
    name = f"penstock-{uuid.uuid4() if current is None else current.id}"
    if is_connect(spark):
        spark.addTag(name)
        try:
            interrupt: Callable[[], Any] = functools.partial(spark.interruptTag, name)
            with also_interrupt(interrupt, "grpc"):
                yield
        finally:
            spark.removeTag(name)
        return
    context: Any = spark.sparkContext
    context.setJobGroup(name, function, interruptOnCancel=True)
    try:
        with also_interrupt(lambda: context.cancelJobGroup(name), "py4j"), _named(context, current):
            yield
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)


@contextmanager
def _named(context: Any, current: CurrentJob | None) -> Generator[None]:
    """Name the job in Spark's UI: in the description and a tag of what the block starts there."""
    if current is None:
        yield
        return
    job, tag = current.job, f"penstock-{current.id}"
    context.setLocalProperty(
        "spark.job.description", f"{job.task}, job {job.id}, attempt {job.attempt}"
    )
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


@contextmanager
def own_application(
    app: App, current: CurrentJob, factory: Callable[[], Any]
) -> Generator[SparkSession]:
    """A session for this job alone, made once no earlier attempt's application runs."""
    from penstock.spark.progress import reported_progress
    from penstock.worker.interrupt import also_interrupt

    former = last_application(app.broker, current.id)
    if former is not None and former.attempt < current.attempt:
        kill_earlier(former, current)
    token = NAME.set(name_of(current))
    try:
        spark = app.resources.open(factory)
    finally:
        NAME.reset(token)
    make_active(spark)
    if getattr(spark, "_jsparkSession", None) is None:  # Connect has no application of its own
        with job_group(spark, name_of(current)):
            yield spark
        return
    # The store refuses the note unless this attempt still holds the job: a fence before the call.
    own = application_of(spark, current.attempt)
    current.notebook.write(KIND, "", msgspec.json.encode(own))
    current.event(KIND, id=own.id, master=own.master)
    if former is None and current.attempt > 1:  # the earlier attempt may have died before its note
        kill_earlier(own, current)
    with (
        also_interrupt(lambda: _cancel_all(spark), "py4j"),
        reported_progress(spark, current, app.clock.now),
        _named(spark.sparkContext, current),
    ):
        yield spark


class BatchInterrupted(Exception):
    """Raised in the Python callbacks of a stream (foreachBatch) when its job is interrupted."""


def _cancel_all(spark: Any) -> None:
    """Cancel all Spark jobs and stop all streams, so that the waiting thread returns."""
    from penstock.worker.interrupt import raise_in

    with suppress(Exception):  # the JVM is gone
        spark.sparkContext.cancelAllJobs()
        # stop() waits for a running foreachBatch callback: interrupt it.
        for thread, frame in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no public way
            if any(caller.f_code.co_name == _CALLBACK for caller, _ in traceback.walk_stack(frame)):
                raise_in(thread, BatchInterrupted)
        for query in spark.streams.active:
            query.stop()


def opened_session(url: str, config: Mapping[str, Any] | None = None) -> Generator[SparkSession]:
    """The session that runs in this process, or a new one, which is stopped at the end."""
    from pyspark import SparkContext

    existing = SparkContext._active_spark_context is not None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no public way
    name = NAME.get() or "penstock worker"
    spark = session(os.environ.get(MASTER) or None, app_name=name, url=url, config=config)
    try:
        yield spark
    finally:
        if not existing:
            spark.stop()
