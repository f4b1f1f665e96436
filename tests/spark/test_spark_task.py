"""Spark tasks: a session is given where they run, and no caller sees it."""

from __future__ import annotations

import inspect
import threading
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import App, Refused, State
from penstock.worker import Worker
from tests.stories.conftest import eventually

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture
def app(spark: Any, store_url: str) -> Any:
    app = App(store_url)
    yield app
    app.close()


def a_task(app: App) -> Any:
    @app.task(name="daily", spark=True)
    def daily(spark: SparkSession, day: date, rows: int = 10) -> int:
        """Count."""
        return spark.range(rows).count() + day.day

    return daily


def drain(app: App) -> None:
    Worker(app, drain=True, threads=2).work()


def test_the_session_is_no_argument(app: App):
    daily = a_task(app)

    assert list(inspect.signature(daily.function).parameters) == ["day", "rows"]
    assert daily.signature_text == "daily(day: date, rows: int = 10) -> int"
    job = daily.job(date(2026, 1, 5), rows=3)
    assert b"spark" not in job.body
    assert (daily.name, daily.__doc__) == ("daily", "Count.")


def test_it_runs_as_a_plain_call_and_as_a_job(app: App, spark: Any):
    daily = a_task(app)
    handles = [daily.enqueue(date(2026, 1, day)) for day in (1, 2, 3)]

    drain(app)

    assert [handle.result() for handle in handles] == [11, 12, 13]
    assert daily(date(2026, 1, 5), rows=1) == 6
    # It was there before: whoever made it ends it.
    assert spark.range(2).count() == 2


def test_what_it_starts_on_spark_is_named_after_the_job(app: App, spark: Any):
    """In the Spark UI: the description of its Spark jobs, and a tag to find them by."""

    @app.task(name="named", spark=True)
    def named(spark: SparkSession) -> list[str | None]:
        spark.range(3).count()
        properties = ("spark.job.description", "spark.job.tags")
        return [spark.sparkContext.getLocalProperty(name) for name in properties]

    handle = named.enqueue()
    drain(app)

    id = handle.id
    assert handle.result() == [f"named, job {id}, attempt 1", f"penstock-{id}"]
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # Python's has no tags
    found = list(tracker.getJobIdsForTag(f"penstock-{id}"))
    assert found
    assert not spark.sparkContext.getJobTags()


def test_a_session_of_ones_own_and_in_tests_any_value(app: App):
    def make() -> Any:
        raise AssertionError("it is replaced")

    @app.task(name="own", spark=make)
    def own(spark: Any, number: int) -> str:
        return f"{spark.sparkContext.name} {number}"

    class Context:
        name = "stands in"
        setJobGroup = setLocalProperty = cancelJobGroup = staticmethod(lambda *_, **__: None)  # noqa: N815

    class Session:
        sparkContext = Context()  # noqa: N815

    with app.replace(make, Session()):
        assert own(3) == "stands in 3"


def test_cancelling_a_job_cancels_what_it_started_on_spark(app: App, spark: Any):
    @app.task(name="endless", spark=True)
    def endless(spark: SparkSession) -> int:
        def slowly(rows: Any) -> Any:
            threading.Event().wait(600)
            return rows

        return spark.sparkContext.parallelize([1], 1).mapPartitions(slowly).count()

    handle = endless.enqueue()
    worker = Worker(app, threads=1, lease=3.0)
    thread = threading.Thread(target=worker.work, daemon=True)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    group = f"penstock-{handle.id}"
    eventually(lambda: tracker.getActiveJobsIds() and tracker.getJobIdsForGroup(group), 60)

    handle.cancel()

    eventually(lambda: handle.state() is State.CANCELLED, 30)
    eventually(lambda: not tracker.getActiveJobsIds(), 30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_a_backfill_of_a_spark_task(app: App):
    filled = a_task(app).backfill("2026-01-01", "2026-01-03", max_running=1)

    drain(app)

    assert filled.done()
    assert [handle.result() for handle in filled.handles.values()] == [11, 12, 13]


def test_what_cannot_be_a_spark_task_is_refused(app: App):
    with pytest.raises(Refused, match="its first parameter must be the session"):

        @app.task(spark=True)  # pyright: ignore[reportArgumentType]
        def nothing() -> None: ...

    with pytest.raises(Refused, match="would hold up the event loop"):

        @app.task(spark=True)
        async def waits(spark: SparkSession) -> None: ...

    with pytest.raises(Refused, match="True, or a function"):

        @app.task(spark="local[2]")  # pyright: ignore[reportCallIssue, reportArgumentType]
        def text(spark: SparkSession) -> None: ...


def test_a_task_writes_by_name_whichever_thread_it_runs_on(app: App, store_url: str):
    """Spark knows its sources by the thread's own session, and a worker has many threads."""

    @app.task(name="fill", spark=True)
    def fill(spark: SparkSession, rows: int) -> None:
        writer = spark.range(rows).write.format("penstock").option("url", store_url)
        writer.option("task", "mail:send").mode("append").save()

    handle = fill.enqueue(3)

    drain(app)

    assert handle.result() is None
    assert [count.ready for count in app.broker.count() if count.task == "mail:send"] == [3]
