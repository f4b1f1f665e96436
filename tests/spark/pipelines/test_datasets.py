"""Datasets: tiny frames, and answers that were worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.spark.pipelines.datasets.clean_attempts import DAY, HOUR, MINUTE, clean
from penstock.spark.pipelines.datasets.failures import failures
from penstock.spark.pipelines.datasets.flows import critical_path, flows, slow_steps, steps
from penstock.spark.pipelines.datasets.forecast import forecast
from penstock.spark.pipelines.datasets.jobs import jobs
from penstock.spark.pipelines.datasets.open_jobs import open_jobs
from penstock.spark.pipelines.datasets.queue_depth import depth
from penstock.spark.pipelines.datasets.schedule_delay import schedule_delay
from penstock.spark.pipelines.datasets.throughput import by_tag, load
from penstock.spark.pipelines.datasets.worker_use import worker_use
from tests.spark.pipelines.history import a_frame, a_gauge, an_attempt, an_event, at, attempts


def rows(frame: Any, *order: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy(*order).collect()]


def utc(moment: datetime) -> datetime:
    """Spark hands out times without a zone, in that of this process."""
    return moment.astimezone(UTC)


def test_an_attempt_knows_how_long_it_waited_and_ran(shared_spark):
    first, delayed, retried, never, odd = rows(
        clean(
            attempts(
                shared_spark,
                an_attempt(1),
                an_attempt(2, run_at=at(0.5)),
                an_attempt(3, state="ready", reason="error", run_at=at(60), error="Boom: 1"),
                an_attempt(4, state="cancelled", reason="cancelled", started_at=None),
                an_attempt(5, started_at=at(4), ended_at=at(3)),
            )
        ),
        "position",
    )

    assert (first["wait"], first["run"], first["finished"], first["bad"]) == (1, 2, True, False)
    assert delayed["wait"] == 0.5
    assert retried["wait"] is None
    assert (retried["run"], retried["retried"], retried["finished"]) == (2, True, False)
    assert (never["wait"], never["run"], never["bad"]) == (None, None, False)
    assert odd["run"] == 0


@pytest.mark.parametrize(
    ("error", "reason", "signature"),
    [
        (
            "Traceback\n  line 3\nValueError: order 17 is gone\n",
            "error",
            "ValueError: order # is gone",
        ),
        ("KeyError: 'ada@example.org'", "error", "KeyError: '…'"),
        ("At: 0x7f00 of 0190a6c4-5e1f-7000-8000-00000a1b2000", "error", "At: # of #"),
        (None, "crashed", "crashed"),
        ("  \n", "timeout", "timeout"),
        ("Gone\r\n \t\x0b\f\n", "error", "Gone"),
        ("E: " + "x" * 500_000, "error", "E: " + "x" * 157),
    ],
)
def test_failures_of_one_kind_have_one_signature(shared_spark, error, reason, signature):
    frame = attempts(shared_spark, an_attempt(1, state="failed", reason=reason, error=error))

    assert rows(clean(frame), "position")[0]["signature"] == signature


def test_load_counts_and_times_by_whatever_columns(shared_spark):
    many = [an_attempt(n, started_at=at(n), ended_at=at(2 * n)) for n in range(1, 101)]
    frame = attempts(
        shared_spark,
        *many,
        an_attempt(101, queue="pdf", state="ready", reason="crashed", ended_at=at(61)),
        an_attempt(102, queue="pdf", state="failed", reason="timeout", started_at=None),
    )

    mail, pdf = rows(load(clean(frame), "queue"), "queue")

    assert mail["attempts"] == mail["jobs"] == mail["succeeded"] == 100
    ranks = ("p50", "p95", "p99")
    assert [mail[f"wait_{rank}"] for rank in ranks] == pytest.approx([50.5, 95.05, 99.01])
    assert [mail[f"run_{rank}"] for rank in ranks] == pytest.approx([50.5, 95.05, 99.01])
    assert mail["busy"] == 5050
    assert (mail["wait_longest"], mail["run_longest"]) == (100, 100)
    assert (pdf["attempts"], pdf["jobs"], pdf["failed"], pdf["retries"]) == (2, 1, 1, 0)
    assert pdf["lapses"] == 1


def test_percentiles_of_many_are_within_a_hundredth(shared_spark):
    waits = [1.01 ** (n % 700) / 7 for n in range(20_000)]
    frame = shared_spark.createDataFrame([(wait,) for wait in waits], "wait double").selectExpr(
        "*",
        "wait as run",
        "'succeeded' as state",
        "true as finished",
        "false as retried",
        "false as lapsed",
        "'mail' as queue",
    )
    ordered = sorted(waits)

    [found] = rows(load(frame, "queue"), "queue")

    for rank, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        exact = ordered[round(part * (len(ordered) - 1))]
        assert exact * 0.99 <= found[f"wait_{rank}"] <= exact * 1.01
    assert found["wait_longest"] == ordered[-1]


def test_load_over_time(shared_spark):
    frame = attempts(shared_spark, *(an_attempt(n, ended_at=at(20 * n)) for n in range(6)))

    found = rows(load(clean(frame), "queue", every=MINUTE), "at")

    assert [(utc(row["at"]), row["attempts"]) for row in found] == [(at(0), 3), (at(60), 3)]


def test_load_by_tag(shared_spark):
    frame = attempts(
        shared_spark,
        an_attempt(1, tags={"tenant": "a", "kind": "x"}),
        an_attempt(2, tags={"tenant": "a"}),
        an_attempt(3, tags={"tenant": "b"}),
        an_attempt(4),
    )

    found = rows(load(by_tag(clean(frame)), "tag", "value"), "tag", "value")

    assert [(row["tag"], row["value"], row["jobs"]) for row in found] == [
        ("kind", "x", 1),
        ("tenant", "a", 2),
        ("tenant", "b", 1),
    ]


def test_nothing_at_all_is_no_row_and_no_error(shared_spark):
    nothing = clean(attempts(shared_spark))

    assert rows(load(nothing, "queue"), "queue") == []
    assert rows(forecast(load(nothing, "queue", every=HOUR)), "queue") == []
    assert rows(critical_path(steps(nothing)), "flow") == []
    assert rows(worker_use(nothing, HOUR), "worker") == []
    assert rows(jobs(nothing), "job") == []


def test_failures_are_counted_by_signature(shared_spark):
    lost = {"state": "failed", "reason": "error"}
    frame = attempts(
        shared_spark,
        an_attempt(1, error="Gone: order 1", state="ready", reason="error"),
        an_attempt(2, error="Gone: order 2", ended_at=at(9), **lost),
        an_attempt(3, error="Full", **lost),
        an_attempt(4),
    )

    full, gone = rows(failures(clean(frame)), "signature")

    assert (gone["signature"], gone["attempts"], gone["ended"]) == ("Gone: order #", 2, 1)
    assert (utc(gone["first_at"]), utc(gone["last_at"])) == (at(3), at(9))
    assert gone["example"] == "job-2"
    assert full["attempts"] == 1


def test_a_job_is_as_its_last_attempt_left_it_and_open_ones_are_as_they_stand(shared_spark):
    frame = attempts(
        shared_spark,
        an_attempt(1, job="a", state="ready", reason="error"),
        an_attempt(2, job="a", attempt=2, started_at=at(5), ended_at=at(9)),
        an_attempt(3, job="b", state="ready", reason="error"),
    )
    standing = shared_spark.createDataFrame(
        [
            ("a", "b", "running", at(0)),
            ("a", "c", "waiting", at(1)),
            ("a", "a", "succeeded", at(0)),
        ],
        "shard string, id string, state string, enqueued_at timestamp",
    ).selectExpr(
        "*",
        "'mail' queue",
        "'t' task",
        "1 version",
        "string(null) reason",
        "0 failures",
        "0 lapses",
        "string(null) flow",
    )

    a, b = rows(jobs(clean(frame)), "job")
    assert (a["state"], a["attempts"], a["run"], a["open"]) == ("succeeded", 2, 6, False)
    assert (b["state"], b["open"]) == ("ready", True)

    a, b, c = rows(jobs(clean(frame), standing), "job")
    assert (a["state"], a["open"]) == ("succeeded", False)
    assert (b["state"], b["open"], b["attempts"]) == ("running", True, 1)
    assert (c["state"], c["open"], c["attempts"], utc(c["enqueued_at"])) == (
        "waiting",
        True,
        0,
        at(1),
    )


def test_the_critical_path_goes_through_what_ended_last_before_each_step(shared_spark):
    def step(position: int, task: str, start: float, end: float, **fields: Any) -> dict[str, Any]:
        return an_attempt(
            position,
            flow="f",
            task=task,
            started_at=at(start),
            ended_at=at(end),
            **{"node": task, **fields},
        )

    frame = attempts(
        shared_spark,
        step(1, "fetch", 1, 10),
        step(2, "quick", 1, 4),
        step(3, "many", 11, 12, node="map"),
        step(4, "many", 11, 15, node="map"),
        step(5, "finish", 18, 20, node="f"),
        an_attempt(6),
    )
    found = steps(clean(frame))

    [flow] = rows(flows(found), "flow")
    assert (flow["kind"], flow["steps"], flow["jobs"], flow["elapsed"]) == ("finish", 4, 5, 20)
    path = rows(critical_path(found), "number")
    assert [(row["task"], row["gap"], row["run"]) for row in path] == [
        ("fetch", 1, 9),
        ("many", 1, 4),
        ("finish", 3, 2),
    ]
    slow = rows(slow_steps(critical_path(found), flows(found)), "task")
    assert [(row["kind"], row["task"], row["spent"], row["share"]) for row in slow] == [
        ("finish", "fetch", 10, 0.5),
        ("finish", "finish", 5, 0.25),
        ("finish", "many", 5, 0.25),
    ]


def test_a_step_that_was_tried_again_took_all_of_that_time(shared_spark):
    """An attempt that led to another one does not say its flow: the job's last one does."""
    first = {"state": "ready", "reason": "error", "job": "a"}
    frame = attempts(
        shared_spark,
        an_attempt(1, started_at=at(1), ended_at=at(2), **first),
        an_attempt(
            2, started_at=at(4), ended_at=at(6), attempt=2, **{**first, "reason": "crashed"}
        ),
        an_attempt(3, started_at=at(8), ended_at=at(9), attempt=3, job="a", flow="f", node="n"),
        an_attempt(4, started_at=at(9), ended_at=at(10), flow="f", node="f", task="end"),
        an_attempt(5, started_at=at(0), ended_at=at(1), state="ready", reason="error"),
    )

    path = rows(critical_path(steps(clean(frame))), "number")

    assert [(row["task"], row["gap"], row["run"], row["again"]) for row in path] == [
        ("mail:send", 1, 8, 2),
        ("end", 0, 1, 0),
    ]


def test_open_jobs_are_counted_by_where_they_stand(shared_spark):
    def job(number: int, state: str, **fields: Any) -> dict[str, Any]:
        times = {"enqueued_at": at(-60), "run_at": at(-60)}
        return {"id": str(number), "queue": "mail", "state": state, **times, **fields}

    frame = a_frame(
        shared_spark,
        "jobs",
        job(1, "ready"),
        job(2, "ready", run_at=at(-5)),
        job(3, "ready", run_at=at(5)),
        job(4, "waiting"),
        job(5, "running"),
        job(6, "failed"),
        job(7, "running", queue="pdf"),
    )

    mail, pdf = rows(open_jobs(frame, at(0).timestamp()), "queue")

    places = ("ready", "scheduled", "waiting", "running", "oldest")
    assert [mail[place] for place in places] == [2, 1, 1, 1, 60]
    assert [pdf[place] for place in places] == [0, 0, 0, 1, None]
    assert utc(mail["at"]) == at(0)


def test_depth_is_the_most_that_stood_there_over_all_shards(shared_spark):
    frame = a_frame(
        shared_spark,
        "gauges",
        a_gauge(1, ready=5, oldest=2.0),
        a_gauge(1, ready=7, oldest=9.0, shard="b"),
        a_gauge(2, ready=3, at=at(60), running=4),
        a_gauge(3, ready=1, at=at(3600)),
    )

    first, second = rows(depth(frame, HOUR), "at")

    assert (first["ready"], first["running"], first["oldest"]) == (12, 4, 9)
    assert (second["ready"], second["oldest"]) == (1, None)


def test_schedule_delay_is_from_the_slot_to_the_first_start(shared_spark):
    def decided(position: int, says: str, job: str | None, **more: Any) -> dict[str, Any]:
        slots = f', "slots": {more["slots"]}' if more else ""
        data = f'{{"schedule": "nightly", "says": "{says}", "slot": "2026-11-15T12:00:00Z"{slots}}}'
        return an_event(position, "schedule", job=job, data=data)

    events = a_frame(
        shared_spark,
        "events",
        decided(1, "enqueued", "job-1"),
        decided(2, "enqueued", "job-2"),
        decided(3, "skipped: overlap", None, slots=3),
        an_event(4, "schedule", data='{"schedule": "nightly", "says": "paused"}'),
        an_event(5, "rule", data="{}"),
    )
    frame = attempts(
        shared_spark,
        an_attempt(1),
        an_attempt(2, started_at=at(4), state="ready", reason="error"),
        an_attempt(3, job="job-2", started_at=at(9)),
    )

    [found] = rows(schedule_delay(events, clean(frame)), "schedule")

    assert (found["schedule"], found["enqueued"], found["skipped"]) == ("nightly", 2, 3)
    assert (found["late_p50"], found["late_longest"]) == (1, 4)


def test_a_worker_is_busy_in_every_hour_that_a_job_ran_in(shared_spark):
    frame = attempts(
        shared_spark,
        an_attempt(1, started_at=at(3000), ended_at=at(7800)),
        an_attempt(2, started_at=at(0), ended_at=at(1800)),
    )

    found = rows(worker_use(clean(frame), HOUR), "at")

    assert [(utc(row["at"]), row["attempts"], row["busy"]) for row in found] == [
        (at(0), 2, 2400),
        (at(3600), 1, 3600),
        (at(7200), 1, 600),
    ]
    assert found[0]["at_a_time"] == pytest.approx(2 / 3)


def hours_of(spark: Any, daily: list[int]) -> Any:
    """So many attempts at noon of each day, of 36 seconds each."""
    rows = [
        ("mail", at(0) + timedelta(days=day), number, 36.0 * number)
        for day, number in enumerate(daily)
        if number
    ]
    return spark.createDataFrame(rows, "queue string, at timestamp, attempts bigint, busy double")


def test_a_forecast_goes_on_along_the_line(shared_spark):
    rising = [100 + 10 * day for day in range(14)]
    [found] = rows(forecast(hours_of(shared_spark, [*rising, 1])), "queue")

    # The line is at 240 on the day that has begun; the week's mean is that of its fourth day.
    assert found["days"] == 14
    assert found["next_week"] == pytest.approx(7 * (240 + 30))
    assert found["growth"] == pytest.approx(270 / 200)
    assert found["peak_at_a_time"] == pytest.approx(2.3)
    assert found["slots"] == 5  # 2.3 * 1.35 / 0.7 = 4.4


def test_a_short_history_is_forecast_level_and_idle_days_count(shared_spark):
    [found] = rows(forecast(hours_of(shared_spark, [90, 0, 30, 7])), "queue")

    assert (found["days"], found["daily"], found["next_week"]) == (3, 40, 280)
    [lone] = rows(forecast(hours_of(shared_spark, [90])), "queue")
    assert (lone["days"], lone["next_week"]) == (1, 630)
    assert DAY == 24 * HOUR
