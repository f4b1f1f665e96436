"""Spark tasks: `@app.task(spark=True)` over `def daily(spark: SparkSession, day: date)`.

The session is no argument: it is made where the task runs, once per process, and the function that
the rest of Penstock sees has no such parameter. What a job starts on Spark is one job group: a
thread that waits for Java hears no exception, so whoever interrupts the job cancels the group.

A detached job has a process, and so a Spark application, of its own: noted with the job, watched
for its progress, and interrupted as a whole.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Refused
from penstock.run.current import CURRENT, CurrentJob
from penstock.spark.application import KIND, NAME, described, end_former, name_of, noted
from penstock.spark.session import make_active, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.app.app import App

MASTER = "PENSTOCK_SPARK_MASTER"
_CALLED = "_call_proxy"  # of py4j: what Java calls in Python runs under it


def spark_function(
    app: App, function: Callable[..., Any], given: object, *, detached: bool = False
) -> Callable[..., Any]:
    """The function without its first parameter, which is filled in with a session at each call.

    `given` is what `spark=` was: True for `penstock.spark.session()`, or what makes the session.
    """
    what = f"@app.task(spark=...) over {function.__qualname__}"
    if inspect.iscoroutinefunction(function):
        raise Refused(f"{what}: Spark waits, and would hold up the event loop; make it a plain def")
    if given is not True and not callable(given):
        raise Refused(f"{what}: spark={given!r}: True, or a function that makes the session")
    signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()), None)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if first is None or first.kind not in by_position or first.default is not first.empty:
        raise Refused(f"{what}: its first parameter is the session, as (spark: SparkSession, ...)")
    factory: Any = app.spark_session if given is True else given

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        current = CURRENT.get()
        if detached and current is not None:
            with own_application(app, current, factory) as spark:
                return function(spark, *args, **kwargs)
        spark = app.resources.open(factory)
        make_active(spark)  # another thread may have made it
        with job_group(spark, function.__qualname__):
            return function(spark, *args, **kwargs)

    rest = [each for each in signature.parameters.values() if each is not first]
    call.__signature__ = signature.replace(parameters=rest)  # pyright: ignore[reportAttributeAccessIssue]  inspect looks for it
    call.__annotations__ = {
        name: each for name, each in function.__annotations__.items() if name != first.name
    }
    return call


@contextmanager
def job_group(spark: SparkSession, description: str) -> Generator[None]:
    """What this thread starts on Spark until the end of the block is cancelled with its job."""
    from penstock.worker.interrupt import also_interrupt

    context: Any = spark.sparkContext
    current = CURRENT.get()
    name = f"penstock-{uuid.uuid4() if current is None else current.id}"
    context.setJobGroup(name, description, interruptOnCancel=True)
    try:
        with also_interrupt(lambda: context.cancelJobGroup(name), "py4j"):
            yield
    finally:
        for each in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(each, None)


@contextmanager
def own_application(
    app: App, current: CurrentJob, factory: Callable[[], Any]
) -> Generator[SparkSession]:
    """A session that is this job's alone, made when no earlier attempt has one any more."""
    from penstock.spark.progress import progress_told
    from penstock.worker.interrupt import also_interrupt

    former = noted(app.broker, current.id)
    if former is not None and former.attempt < current.attempt:
        end_former(former, current)
    token = NAME.set(name_of(current))
    try:
        spark = app.resources.open(factory)
    finally:
        NAME.reset(token)
    make_active(spark)
    if getattr(spark, "_jsparkSession", None) is None:  # it stands in for one, in a test
        yield spark
        return
    # The store takes it from whoever holds the job: from here on nobody else may call the function.
    own = described(spark, current.attempt)
    current.notebook.write(KIND, "", msgspec.json.encode(own))
    current.event(KIND, id=own.id, master=own.master)
    if former is None and current.attempt > 1:  # it may have died before it could note its own
        end_former(own, current)
    with (
        also_interrupt(lambda: _end_all(spark), "py4j"),
        progress_told(spark, current, app.clock.now),
    ):
        yield spark


class BatchInterrupted(Exception):
    """Raised in the Python of a stream, as in foreachBatch, whose job is interrupted."""


def _end_all(spark: Any) -> None:
    """End what an application does, so that whoever waits for it is answered."""
    from penstock.worker.interrupt import raise_in

    with suppress(Exception):  # a Java that is gone has ended it
        spark.sparkContext.cancelAllJobs()
        # A stream waits for the Python that it calls, also when it is stopped.
        for thread, frame in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
            if any(each.f_code.co_name == _CALLED for each, _ in traceback.walk_stack(frame)):
                raise_in(thread, BatchInterrupted)
        for query in spark.streams.active:
            query.stop()


def opened_session(url: str) -> Generator[SparkSession]:
    """The session that runs in this process, or else a new one, which is stopped at the end."""
    from pyspark import SparkContext

    others = SparkContext._active_spark_context is not None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
    name = NAME.get() or "penstock worker"
    spark = session(os.environ.get(MASTER) or None, app_name=name, url=url)
    try:
        yield spark
    finally:
        if not others:
            spark.stop()
