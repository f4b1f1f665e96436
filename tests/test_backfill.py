"""Backfill: a job per partition, once, on every broker."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from penstock import App, Refused, State
from penstock.broker.protocol import Broker
from penstock.job import Outcome
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_worker, claim_for


@pytest.fixture
def app(broker: Broker) -> App:
    return App(broker=broker)


def a_task(app: App) -> Any:
    @app.task(name="daily")
    def daily(day: date, full: bool = False) -> str:
        return day.isoformat()

    return daily


def claim(broker: Broker, limit: int = 1000) -> list[Any]:
    return claim_for(broker, a_worker(tasks={"daily": 1, "hourly": 1, "part": 1}), limit=limit)


def end(broker: Broker, jobs: list[Any], state: State = State.SUCCEEDED) -> None:
    assert all(broker.settle([(job, Outcome(state, "error", result=b'"x"')) for job in jobs]))


def test_a_range_has_a_job_per_day_both_ends_included(app: App, broker: Broker):
    daily = a_task(app)

    filled = daily.backfill("2026-01-30", date(2026, 2, 2), max_running=None)

    assert list(filled.handles) == [
        date(2026, 1, 30),
        date(2026, 1, 31),
        date(2026, 2, 1),
        date(2026, 2, 2),
    ]
    jobs = claim(broker)
    assert daily.codec.read(jobs[0].body)[2]["day"] == date(2026, 1, 30)
    assert [job.tags["partition"] for job in jobs] == [str(day) for day in filled.handles]


# REQUIREMENTS S13
def test_the_same_range_again_is_the_same_jobs(app: App, broker: Broker):
    daily = a_task(app)
    first = daily.backfill("2026-01-01", "2026-01-05", max_running=None)
    running = claim(broker, 2)

    again = daily.backfill("2026-01-03", "2026-01-07", max_running=None)

    shared = first.handles.keys() & again.handles.keys()
    assert len(shared) == 3
    assert all(first.handles[day].id == again.handles[day].id for day in shared)
    assert len(running) + len(claim(broker)) == 7


def test_what_is_done_stays_done_and_what_failed_is_tried_again(app: App, broker: Broker):
    daily = a_task(app)
    filled = daily.backfill("2026-01-01", "2026-01-04", max_running=None)
    jobs = claim(broker)
    end(broker, jobs[:2])
    end(broker, jobs[2:], State.FAILED)

    again = daily.backfill("2026-01-01", "2026-01-04", max_running=None)

    assert Counter(again.states().values()) == {State.SUCCEEDED: 2, State.READY: 2}
    assert {job.id for job in claim(broker)} == {job.id for job in jobs[2:]}
    assert not filled.done()


def test_a_range_that_is_done_runs_once_more_if_asked_to(app: App, broker: Broker):
    daily = a_task(app)
    daily.backfill("2026-01-01", "2026-01-03", max_running=None)
    end(broker, claim(broker))

    for _ in range(2):  # while it waits, asking again is nothing
        filled = daily.backfill("2026-01-02", "2026-01-03", max_running=None, skip_done=False)

    assert set(filled.states().values()) == {State.READY}
    jobs = claim(broker)
    assert len(jobs) == 2
    end(broker, jobs)
    assert filled.done()
    assert daily.backfill("2026-01-01", "2026-01-03", max_running=None).done()
    assert claim(broker) == []


def test_a_range_that_is_asked_for_again_on_day_20_runs_nothing(
    app: App, broker: Broker, clock: Any
):
    """S7: what is done stays done when the history of it is gone; what failed is tried again."""
    daily = a_task(app)
    daily.backfill("2026-01-01", "2026-01-04", max_running=None)
    jobs = claim(broker)
    end(broker, jobs[:3])
    end(broker, jobs[3:], State.FAILED)
    clock.advance(days=20)
    broker.prune(clock.now() - 14 * 86400)

    again = daily.backfill("2026-01-01", "2026-01-04", max_running=None)

    assert [job.id for job in claim(broker)] == [jobs[3].id]
    assert [state for state in again.states().values() if state is not None] == [State.RUNNING]
    once_more = daily.backfill("2026-01-01", "2026-01-01", max_running=None, skip_done=False)
    assert [job.tags["partition"] for job in claim(broker)] == ["2026-01-01"]
    assert len(once_more) == 1


def test_no_more_run_at_a_time_than_it_says_and_other_jobs_are_not_counted(
    app: App, broker: Broker
):
    daily = a_task(app)
    daily.backfill("2026-01-01", "2026-01-31", max_running=3)
    daily.enqueue_many([(date(2026, 5, 1),)] * 5)

    keys = Counter(job.key for job in claim(broker))

    assert keys == {"backfill": 3, None: 5}
    assert claim(broker) == []


def test_a_limit_of_somebody_else_is_not_replaced(app: App, broker: Broker):
    daily = a_task(app)
    app.limit(task="daily", running=1, per_key=True, author="ada")

    with pytest.raises(Refused, match="has a limit per key already"):
        daily.backfill("2026-01-01", "2026-01-31")

    [rule] = [rule for rule in broker.records(Rule) if rule.kind is RuleKind.LIMIT]
    assert rule.running == 1


def test_hours_and_numbers_are_partitions_too(app: App, broker: Broker):
    @app.task(name="hourly")
    def hourly(hour: datetime) -> None: ...

    @app.task(name="part")
    def part(number: int) -> None: ...

    hours = hourly.backfill("2026-01-01T22:00Z", datetime(2026, 1, 2, 1, tzinfo=UTC))
    parts = part.backfill(0, 100, step=25)

    assert len(hours) == 4
    assert list(parts.handles) == [0, 25, 50, 75, 100]
    weeks = a_task(app).backfill("2026-01-01", "2026-01-31", step=timedelta(days=7))
    assert [day.day for day in weeks.handles] == [1, 8, 15, 22, 29]


def test_the_grid_shows_where_each_partition_is(app: App, broker: Broker):
    filled = a_task(app).backfill("2026-01-30", "2026-02-02", max_running=None)
    jobs = sorted(claim(broker, 3), key=lambda job: job.tags["partition"])
    end(broker, jobs[:1])
    end(broker, jobs[1:2], State.FAILED)
    by_day = {str(day): state for day, state in filled.states().items()}
    signs = {"succeeded": "+", "failed": "x", "running": ">", "ready": "."}

    head, january, february, legend = str(filled).splitlines()

    assert head == "daily: 4 partitions, 1 ready, 1 running, 1 succeeded, 1 failed"
    days = ("2026-01-30", "2026-01-31", "2026-02-01", "2026-02-02")
    shown = "".join(signs[by_day[day]] for day in days)
    assert january.split() == ["2026-01", shown[:2]]
    assert february.split() == ["2026-02", shown[2:]]
    assert "+ succeeded" in legend


@pytest.mark.parametrize(
    ("start", "end_", "options", "sentence"),
    [
        ("2026-02-01", "2026-01-01", {}, "ends before it begins"),
        ("january", "2026-01-01", {}, "of type date, as '2026-01-31'"),
        (1, 2, {}, "of type date"),
        ("2026-01-01", "2026-01-02", {"step": timedelta(hours=1)}, "whole days"),
        ("2026-01-01", "2026-01-02", {"step": timedelta(0)}, "above 0"),
        ("2026-01-01", "2026-01-02", {"max_running": 0}, "1 or more"),
        ("0001-01-01", "9000-01-01", {}, "do it in parts"),
    ],
)
@pytest.mark.parametrize("broker", ["memory"], indirect=True)
def test_what_makes_no_sense_is_refused(app: App, start, end_, options, sentence):
    with pytest.raises(Refused, match=sentence):
        a_task(app).backfill(start, end_, **options)


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
def test_a_range_may_end_with_the_calendar(app: App):
    assert len(a_task(app).backfill("9999-12-30", "9999-12-31")) == 2


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
def test_a_task_without_a_partition_is_refused(app: App):
    @app.task(name="report")
    def report(name: str) -> None: ...

    with pytest.raises(Refused, match="which is no date"):
        report.backfill("2026-01-01", "2026-01-02")
