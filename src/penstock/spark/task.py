"""Spark tasks: `@app.task(spark=True)` over `def daily(spark: SparkSession, day: date)`.

The session is no argument: it is made where the task runs, once per process, and the function that
the rest of Penstock sees has no such parameter. What a job starts on Spark is one job group: a
thread that waits for Java hears no exception, so whoever interrupts the job cancels the group.
"""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.current import CURRENT
from penstock.errors import Refused
from penstock.spark.session import make_active, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.app import App


def spark_function(app: App, function: Callable[..., Any], given: object) -> Callable[..., Any]:
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
        with also_interrupt(lambda: context.cancelJobGroup(name)):
            yield
    finally:
        for each in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(each, None)


def opened_session(url: str) -> Generator[SparkSession]:
    """The session that runs in this process, or else a new one, which is stopped at the end."""
    from pyspark import SparkContext

    others = SparkContext._active_spark_context is not None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
    spark = session(app_name="penstock worker", url=url)
    try:
        yield spark
    finally:
        if not others:
            spark.stop()
