"""Rollups: a few rows, and tables that were worked out by hand. No Spark."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.histogram import middle, percentile
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.upkeep import compact
from penstock.spark.pipelines.report.forecast import forecast
from penstock.spark.pipelines.report.queries import Range, ReportData, query_report, spans
from penstock.spark.pipelines.report.rollup_source import LakeRollups
from penstock.spark.pipelines.rollups.attempts import rollup_attempts, signature
from penstock.spark.pipelines.rollups.build import build, build_here
from penstock.spark.pipelines.rollups.days import depth, rollup_days
from penstock.spark.pipelines.rollups.histogram import buckets
from penstock.spark.pipelines.rollups.tables import DAY, HOUR, MINUTE, OF_ATTEMPTS, OF_DAYS
from penstock.spark.source.tables import TABLES, arrow_schema
from tests.spark.pipelines.history import NOON, a_gauge, an_attempt, an_event, at, put_rows


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def batch(table: str, *rows: dict[str, Any]) -> Any:
    """Rows of a raw table, as Arrow has them."""
    tagged = [
        {**row, **({"tags": list(row["tags"].items())} if "tags" in row else {})} for row in rows
    ]
    return pa.RecordBatch.from_pylist(tagged, arrow_schema(TABLES[table]))


def rolled(*attempts: dict[str, Any]) -> dict[str, Any]:
    return rollup_attempts([batch("attempts", *attempts)])


def of_days(attempts: list[dict[str, Any]], events: Any = (), day: int | None = None) -> Any:
    return rollup_days([batch("attempts", *attempts)], [batch("events", *events)], [], day)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def report(lake: Lake, **asked: Any) -> ReportData:
    build(lake, build_here, nobody)
    return query_report(LakeRollups(lake), Range(**asked))


# REQUIREMENTS S22
@settings(deadline=None)
@given(st.lists(st.integers(0, 10**14), min_size=1, max_size=200), st.floats(0, 1))
def test_a_percentile_is_within_a_hundredth_of_the_exact_one(durations, rank):
    """Exact: between the two durations at the rank in proportion, as SQL's percentile_cont is."""
    counts = Counter(buckets(pa.array(durations, pa.int64())).to_pylist())

    found = percentile(counts, rank)

    ordered, place = sorted(durations), rank * (len(durations) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(durations) - 1)]
    exact = (low + (high - low) * (place % 1)) / 1e6
    assert found == pytest.approx(exact, rel=0.01, abs=1e-12)


def test_a_bucket_is_two_hundredths_wide_and_no_time_has_its_own():
    assert buckets(pa.array([0, 1, None, 10**6], pa.int64())).to_pylist() == [0, 1, None, 698]
    assert middle(0) == 0
    assert middle(101) / middle(100) == pytest.approx(1.02)
    assert percentile({}, 0.5) is None


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3 * DAY), st.integers(0, 10**7)), min_size=1, max_size=60))
def test_rollups_of_two_parts_are_merged_by_addition(history):
    rows = [
        an_attempt(
            n, ended_at=at(ended + 10), started_at=at(ended + 10) - timedelta(microseconds=run)
        )
        for n, (ended, run) in enumerate(history)
    ]
    half = len(rows) // 2
    parts = [rolled(*part) for part in (rows[:half], rows[half:]) if part]

    for name in ("minutes", "hours", "days"):
        whole = rolled(*rows)[name]
        keys = [column for column in whole.column_names if column not in {"attempts", "busy"}]
        sums = [("attempts", "sum"), ("busy", "sum")]
        merged = pa.concat_tables([part[name] for part in parts]).group_by(keys).aggregate(sums)
        both = [
            {tuple(row[key] for key in keys): row["attempts_sum"] for row in table.to_pylist()}
            for table in (merged, whole.group_by(keys).aggregate(sums))
        ]
        assert both[0] == both[1]


@pytest.mark.parametrize("every", [MINUTE, HOUR, DAY])
@given(since=st.integers(0, 10 * DAY), length=st.integers(1, 10 * DAY))
def test_a_span_is_covered_once_by_coarse_rollups_and_fine_ones_at_its_edges(since, length, every):
    since, until = (
        since - since % MINUTE,
        since - since % MINUTE + length - length % MINUTE + MINUTE,
    )

    found = sorted(spans(since, until, every), key=lambda span: span[1])

    assert [found[0][1], found[-1][2]] == [since, until]
    assert all(left[2] == right[1] for left, right in pairwise(found))
    sizes = {"minutes": MINUTE, "hours": HOUR, "days": DAY}
    assert all(start % sizes[name] == end % sizes[name] == 0 for name, start, end in found)
    assert all(sizes[name] <= every for name, _, _ in found)


def test_counts_waits_and_runs_by_task(lake):
    many = [an_attempt(n, started_at=at(n), ended_at=at(2 * n)) for n in range(1, 101)]
    others = (
        an_attempt(101, queue="pdf", state="ready", reason="crashed", ended_at=at(61)),
        an_attempt(102, queue="pdf", state="failed", reason="timeout", started_at=None),
        an_attempt(103, queue="pdf", state="ready", reason="error", run_at=at(60)),
    )
    put_rows(lake, "attempts", *many, *others)

    mail, pdf = sorted(report(lake).tasks, key=lambda row: row["queue"])

    assert mail["attempts"] == mail["jobs"] == mail["succeeded"] == 100
    ranks = ("p50", "p95", "p99")
    exact = pytest.approx([50.5, 95.05, 99.01], rel=0.01)
    assert [mail[f"wait_{rank}"] for rank in ranks] == exact
    assert [mail[f"run_{rank}"] for rank in ranks] == exact
    assert (mail["busy"], mail["success_rate"]) == (5050, 1)
    assert (pdf["attempts"], pdf["jobs"], pdf["failed"], pdf["retries"]) == (3, 1, 1, 1)
    assert (pdf["lapses"], pdf["success_rate"]) == (1, 0)


def test_what_did_not_begin_has_no_run_and_what_was_retried_no_wait():
    tables = rolled(
        an_attempt(1, state="cancelled", reason="cancelled", started_at=None),
        an_attempt(2, state="ready", reason="error", run_at=at(60)),
        an_attempt(3, started_at=at(4), ended_at=at(3)),
    )

    measured = [(row["measure"], row["bucket"]) for row in tables["days"].to_pylist()]
    assert [each for each in measured if each[0] == "wait"] == [("wait", 768)]
    assert sorted(each for each in measured if each[0] == "run") == [("run", 0), ("run", 733)]


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        (
            "Traceback\n  line 3\nValueError: order 17 is gone\n",
            "error",
            "ValueError: order # is gone",
        ),
        ("KeyError: 'ada@example.org'", "error", "KeyError: '…'"),
        ("At: 0x7f00 of 0190a6c4-5e1f-7000-8000-00000a1b2000", "error", "At: # of #"),
        (None, "crashed", "crashed"),
        (None, None, "failed"),
        ("  \n", "timeout", "timeout"),
        ("E: " + "x" * 500_000, "error", "E: " + "x" * 157),
    ],
)
def test_failures_of_one_kind_have_one_signature(error, reason, expected):
    assert signature(error, reason) == expected


def test_failures_of_two_days_are_added_up(lake):
    lost = {"state": "failed", "reason": "error"}
    put_rows(
        lake,
        "attempts",
        an_attempt(1, error="Gone: order 1", state="ready", reason="error"),
        an_attempt(2, error="Gone: order 2", ended_at=at(DAY), **lost),
        an_attempt(3, error="Full", **lost),
        an_attempt(4),
    )

    gone, full = report(lake).failures

    assert (gone["signature"], gone["attempts"], gone["ended"]) == ("Gone: order #", 2, 1)
    assert (gone["first_at"], gone["last_at"]) == (at(3).timestamp(), at(DAY).timestamp())
    assert (gone["example"], full["attempts"]) == ("job-2", 1)


def test_tags_count_and_partitions_count_for_their_backfill(lake):
    filled = {"key": "backfill", "task": "etl:day"}
    put_rows(
        lake,
        "attempts",
        an_attempt(1, tags={"tenant": "a", "kind": "x"}),
        an_attempt(2, tags={"tenant": "a"}),
        an_attempt(3, tags={"partition": "2026-01-01"}, **filled),
        an_attempt(4, tags={"partition": "2026-01-02"}, state="failed", reason="error", **filled),
        an_attempt(5, tags={"partition": "mine"}),
    )

    found = report(lake)

    assert {(row["tag"], row["value"]): row["jobs"] for row in found.tags} == {
        ("tenant", "a"): 2,
        ("kind", "x"): 1,
        ("partition", "mine"): 1,
    }
    [backfill] = found.backfills
    assert (backfill["value"], backfill["jobs"], backfill["failed"]) == ("etl:day", 2, 1)


def test_a_report_of_a_time_a_task_or_a_queue(lake):
    put_rows(
        lake,
        "attempts",
        *(an_attempt(n, ended_at=at(HOUR * n)) for n in range(1, 60)),
        an_attempt(60, queue="pdf", task="pdf:cut", ended_at=at(60)),
    )

    def attempts(**asked: Any) -> int:
        return report(lake, **asked).total["attempts"]

    begin = NOON.timestamp()
    assert attempts() == 60
    assert attempts(task="pdf:cut") == attempts(queue="pdf") == 1
    assert attempts(since=begin + 2 * HOUR, until=begin + 50 * HOUR) == 48
    assert attempts(since=begin + 2 * HOUR + 60) == 57
    assert attempts(until=begin) == 0
    only = report(lake, task="pdf:cut")
    assert {row["queue"] for row in only.over_time} == {"pdf"}
    assert (only.workers, only.tags) == ([], [])


def test_a_week_stands_beside_the_one_before(lake):
    put_rows(
        lake,
        "attempts",
        *(an_attempt(n, ended_at=at(-3 * DAY)) for n in range(1, 31)),
        *(an_attempt(n, ended_at=at(-9 * DAY), state="failed") for n in range(31, 41)),
        an_attempt(41),
    )

    [week] = report(lake).weeks

    assert (week["jobs"], week["success_rate"]) == (31, 1)
    assert (week["before"]["jobs"], week["before"]["success_rate"]) == (10, 0)


def test_the_critical_path_goes_through_what_ended_last_before_each_step():
    def step(position: int, task: str, start: float, end: float, **fields: Any) -> dict[str, Any]:
        times = {"started_at": at(start), "ended_at": at(end)}
        return an_attempt(position, flow="f", task=task, **times, **{"node": task, **fields})

    tables = of_days(
        [
            step(1, "fetch", 1, 10),
            step(2, "quick", 1, 4),
            step(3, "many", 11, 12, node="map"),
            step(4, "many", 11, 15, node="map"),
            step(5, "finish", 18, 20, node="f"),
            an_attempt(6),
        ]
    )

    [flow] = tables["flows"].to_pylist()
    assert (flow["kind"], flow["flows"], flow["bad"]) == ("finish", 1, 0)
    assert middle(flow["bucket"]) == pytest.approx(20, rel=0.01)
    steps = [(row["task"], row["gap"], row["run"]) for row in tables["flow_steps"].to_pylist()]
    assert steps == [("fetch", 1, 9), ("many", 1, 4), ("finish", 3, 2)]


def test_a_step_that_was_tried_again_took_all_of_that_time():
    """An attempt that led to another one does not say its flow: the job's last one does."""
    first = {"state": "ready", "reason": "error", "job": "a"}
    tables = of_days(
        [
            an_attempt(1, started_at=at(1), ended_at=at(2), **first),
            an_attempt(2, started_at=at(4), ended_at=at(6), attempt=2, **first),
            an_attempt(3, started_at=at(8), ended_at=at(9), attempt=3, job="a", flow="f", node="n"),
            an_attempt(4, started_at=at(9), ended_at=at(10), flow="f", node="f", task="end"),
        ]
    )

    steps = [
        (row["task"], row["gap"], row["run"], row["again"])
        for row in tables["flow_steps"].to_pylist()
    ]
    assert steps == [("mail:send", 1, 8, 2), ("end", 0, 1, 0)]


def test_a_flow_over_midnight_is_counted_once(lake):
    """On the day of its final job, with its steps of the day before."""
    midnight = 12 * HOUR
    put_rows(
        lake,
        "attempts",
        an_attempt(1, flow="f", node="a", task="a", started_at=at(1), ended_at=at(midnight - 1)),
        an_attempt(
            2, flow="f", node="f", task="b", started_at=at(midnight), ended_at=at(midnight + 9)
        ),
        an_attempt(3, flow="open", node="a", task="a"),
    )

    found = report(lake)

    assert [(row["kind"], row["flows"]) for row in found.flows] == [("b", 1)]
    assert [row["task"] for row in found.steps] == ["a", "b"]


def test_schedule_delay_is_from_the_slot_to_the_first_start():
    def decided(position: int, says: str, job: str | None, **more: Any) -> dict[str, Any]:
        slots = f', "slots": {more["slots"]}' if more else ""
        data = f'{{"schedule": "nightly", "says": "{says}", "slot": "2026-11-15T12:00:00Z"{slots}}}'
        return an_event(position, "schedule", job=job, data=data)

    table = of_days(
        [
            an_attempt(1),
            an_attempt(2, started_at=at(4), state="ready", reason="error"),
            an_attempt(3, job="job-2", started_at=at(9), attempt=2),
        ],
        [
            decided(1, "enqueued", "job-1"),
            decided(2, "enqueued", "job-2"),
            decided(3, "skipped: overlap", None, slots=3),
            an_event(4, "schedule", data='{"schedule": "nightly", "says": "paused"}'),
            an_event(5, "schedule", data="damaged"),
            an_event(6, "rule", data="{}"),
        ],
    )["schedules"].to_pylist()

    assert sum(row["enqueued"] or 0 for row in table) == 2
    assert sum(row["skipped"] or 0 for row in table) == 3
    late = sorted(middle(row["bucket"]) for row in table if row["bucket"] is not None)
    assert late == pytest.approx([1, 4], rel=0.01)


def test_depth_is_the_most_that_stood_there_over_all_shards():
    table = depth(
        [
            batch("gauges", a_gauge(1, ready=5, oldest=2.0)),
            batch("gauges", a_gauge(1, ready=7, oldest=9.0, shard="b")),
            batch(
                "gauges", a_gauge(2, ready=3, at=at(30), running=4), a_gauge(3, ready=1, at=at(60))
            ),
        ]
    )

    first, second = table.sort_by("at").to_pylist()
    assert (first["ready"], first["running"], first["oldest"]) == (12, 4, 9)
    assert (second["ready"], second["oldest"]) == (1, None)


def test_a_worker_is_busy_in_every_hour_that_a_job_ran_in():
    table = rolled(
        an_attempt(1, started_at=at(3000), ended_at=at(7800)),
        an_attempt(2, started_at=at(0), ended_at=at(1800)),
    )["workers"]

    found = [(row["at"], row["attempts"], row["busy"]) for row in table.sort_by("at").to_pylist()]
    assert found == [(at(0), 2, 2400), (at(3600), 1, 3600), (at(7200), 1, 600)]


def hours_of(daily: list[int]) -> list[dict[str, Any]]:
    """So many attempts at noon of each day, of 36 seconds each."""
    return [
        {"queue": "mail", "at": NOON.timestamp() + day * DAY, "attempts": n, "busy": 36.0 * n}
        for day, n in enumerate(daily)
        if n
    ]


def test_a_forecast_goes_on_along_the_line():
    rising = [100 + 10 * day for day in range(14)]
    [found] = forecast(hours_of([*rising, 1]))

    # The line is at 240 on the day that has begun; the week's mean is that of its fourth day.
    assert found["days"] == 14
    assert found["next_week"] == pytest.approx(7 * (240 + 30))
    assert found["growth"] == pytest.approx(270 / 200)
    assert found["peak_at_a_time"] == pytest.approx(2.3)
    assert found["slots"] == 5  # 2.3 * 1.35 / 0.7 = 4.4


def test_a_short_history_is_forecast_level_and_idle_days_count():
    [found] = forecast(hours_of([90, 0, 30, 7]))

    assert (found["days"], found["daily"], found["next_week"]) == (3, 40, 280)
    [lone] = forecast(hours_of([90]))
    assert (lone["days"], lone["next_week"]) == (1, 630)
    assert list(forecast([])) == []


# REQUIREMENTS S22
def test_only_days_that_changed_are_made_anew(lake):
    put_rows(lake, "attempts", an_attempt(1), an_attempt(2, ended_at=at(DAY)))
    put_rows(lake, "gauges", a_gauge(1, ready=3))
    nothing = dict.fromkeys((*OF_ATTEMPTS, *OF_DAYS), 0)
    assert build(lake, build_here, nobody) == dict.fromkeys(nothing, 2)
    assert build(lake, build_here, nobody) == nothing

    before = {file.path for file in lake.table("minutes").files(["2026-11-15"])}
    put_rows(lake, "attempts", an_attempt(3, ended_at=at(DAY), state="failed", reason="error"))
    assert build(lake, build_here, nobody) == dict.fromkeys(nothing, 1)
    assert {file.path for file in lake.table("minutes").files(["2026-11-15"])} == before
    compact(lake, nobody)
    assert build(lake, build_here, nobody) == nothing
    assert report(lake).total["attempts"] == 3


def test_killed_between_two_tables_the_next_run_makes_them_agree(lake, monkeypatch):
    put_rows(lake, "attempts", an_attempt(1))
    commit, done = type(lake.table("attempts")).commit, 0

    def dying(snapshot: Any, *args: Any, **options: Any) -> None:
        nonlocal done
        done += 1
        if done == 3:
            raise KeyboardInterrupt
        commit(snapshot, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(lake.table("attempts")), "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            build(lake, build_here, nobody)

    assert build(lake, build_here, nobody)["days"] == 1
    found = report(lake)
    assert found.total["attempts"] == sum(row["attempts"] for row in found.over_time) == 1


def test_an_empty_lake_is_an_empty_report(lake):
    put_rows(lake, "events", an_event(1))

    found = report(lake)
    assert (found.first_at, found.total["attempts"], found.forecast) == (None, 0, [])
