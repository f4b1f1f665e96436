"""Frames of the source: what is asked of one leaves it as it is, for whatever is asked next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.job import failed, succeeded
from penstock.spark.pipelines.report.queries import MOST, query_report
from penstock.spark.pipelines.report.rollup_source import StoreRollups
from penstock.testing.conformance.factories import begun, claim, some_jobs
from tests.spark.conftest import whatever_the_store

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
STANDING = {"failed": 2, "ready": 4, "succeeded": 3}


@pytest.fixture
def broker(store_url: str, clock: Any) -> Iterator[Broker]:
    broker = open_broker(store_url, clock)
    yield broker
    broker.close()


@pytest.fixture(params=["Spark's default", "false", "true"])
def setting(request: pytest.FixtureRequest, shared_spark: Any) -> Iterator[None]:
    """Whatever a session says about filters of Python sources."""
    if request.param != "Spark's default":
        shared_spark.conf.set(PUSHDOWN, request.param)
    yield
    shared_spark.conf.unset(PUSHDOWN)


@pytest.fixture
def jobs(spark: Any, setting: None, broker: Broker, clock: Any) -> Any:
    """The table jobs, with jobs in three states."""
    broker.enqueue(some_jobs(clock, sum(STANDING.values())))
    outcomes = [failed("x")] * STANDING["failed"] + [succeeded()] * STANDING["succeeded"]
    taken = claim(broker, limit=len(outcomes))
    broker.settle(
        [(job, begun(outcome, clock.now())) for job, outcome in zip(taken, outcomes, strict=True)]
    )
    return spark.read.format("penstock").option("table", "jobs").load()


# REQUIREMENTS S7
@whatever_the_store
def test_a_frame_that_was_filtered_is_whole_again(jobs):
    counted = [
        jobs.count(),
        jobs.where("state = 'failed'").count(),
        jobs.count(),
        jobs.where("state = 'ready' and queue = 'default'").count(),
        jobs.count(),
    ]

    assert counted == [9, 2, 9, 4, 9]


@whatever_the_store
def test_two_filters_of_a_frame_in_one_query(jobs):
    failing, ready = jobs.where("state = 'failed'"), jobs.where("state = 'ready'")

    both = failing.union(ready).groupBy("state").count().collect()

    assert {row["state"]: row["count"] for row in both} == {"failed": 2, "ready": 4}


@whatever_the_store
def test_a_frame_joined_with_itself(jobs):
    failing, ready = jobs.where("state = 'failed'"), jobs.where("state = 'ready'")

    pairs = failing.alias("a").join(ready.alias("b"), "task").selectExpr("a.id", "b.id as other")

    assert pairs.count() == len({tuple(row) for row in pairs.collect()}) == 2 * 4
    assert jobs.alias("a").join(failing.alias("b"), "id").count() == 2


@whatever_the_store
def test_a_view_is_asked_this_and_that(spark, jobs):
    jobs.createOrReplaceTempView("standing")
    ask = "select count(*) from standing where {}"
    try:
        counted = {
            state: spark.sql(ask.format(f"state = '{state}'")).collect()[0][0] for state in STANDING
        }
        [(whole,)] = spark.sql(ask.format("true")).collect()
        [(failing, ready)] = spark.sql(
            "select (select count(*) from standing where state = 'failed'),"
            " (select count(*) from standing where state = 'ready')"
        ).collect()
    finally:
        spark.catalog.dropTempView("standing")

    assert (counted, whole) == (STANDING, 9)
    assert (failing, ready) == (2, 4)


@whatever_the_store
def test_a_report_of_many_queues_names_the_tasks_of_all(broker, clock):
    """Plots show the busiest queues alone; what is asked after them is asked of all."""
    for number in range(MOST):
        broker.enqueue(some_jobs(clock, 2, "mail:send", queue=f"customer-{number}"))
    long = [f"film:cut-{number}" for number in range(10)]
    for number, task in enumerate(long):
        broker.enqueue(some_jobs(clock, 1, task, queue=f"film-{number}"))
    taken: list[Any] = []
    known = dict.fromkeys(["mail:send", *long], 1)
    while some := claim(broker, limit=1000, tasks=known):
        taken += some
    began = clock.now()
    clock.advance(seconds=100)
    broker.settle(
        [(job, begun(succeeded(), began if job.task in long else clock.now() - 1)) for job in taken]
    )

    answers = query_report(StoreRollups(broker))

    assert answers.total["attempts"] == 2 * MOST + 10
    assert len({row["queue"] for row in answers.over_time}) == MOST
    assert {row["task"] for row in answers.tasks} == {"mail:send", *long}
