"""Trends: what was measured, gaps where nobody measured, and marks on the time axis."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.span_stats import QueueSpan, SpanStats, TaskSpan, WorkerSpan
from penstock.broker.views import Event
from penstock.errors import Refused
from penstock.operate.trends import Trend, TrendFilter, read_trend, slow_text

HOUR = 3600.0
NOW = 1_800_000_000.0 // HOUR * HOUR


class Rows:
    """A history of these spans; the kind decides which are seen."""

    def __init__(self, rules: tuple[Event, ...] = (), **spans: list[SpanStats]) -> None:
        self.spans = {**spans}
        self.rules = rules

    def __call__(self, after: object, limit: int, *, kind: str) -> list[Event]:
        if kind == "rule":
            return list(self.rules)
        return [
            Event(position="1", kind=kind, at=span.at, data=msgspec.json.encode(span))
            for span in self.spans.get(kind, [])
        ][-limit:]


def minute(number: int, ended: int = 0, *, ready: int = 1, **fields) -> SpanStats:
    """The statistics of a minute, so many before now."""
    at = NOW - 60 * number
    tasks = [TaskSpan("mail", "mail:send", ended, run={700: ended}, ran=0.5 * ended)]
    return SpanStats(
        at=at,
        read_at=at + 60,
        tasks=tasks if ended else [],
        queues=[QueueSpan("mail", ready)] if ready else [],
        holds=bool(ready),
        **fields,
    )


def the_last(trend: Trend, number: int) -> list[float | None]:
    return trend.succeeded[-number:]


def test_a_rate_is_of_the_minute_in_which_the_attempts_ended():
    trend = read_trend(Rows(minute=[minute(3, 120), minute(2, 60), minute(1, 30)]), NOW)

    assert the_last(trend, 4) == [None, 2.0, 1.0, 0.5]
    assert len(trend.at) == 60
    assert trend.at[-1] == NOW - 60


def test_two_rows_of_one_minute_are_added_up():
    trend = read_trend(Rows(minute=[minute(1, 30), minute(1, 30)]), NOW)

    assert the_last(trend, 1) == [1.0]


def test_a_time_in_which_nobody_measured_is_a_gap_where_there_were_jobs():
    trend = read_trend(Rows(minute=[minute(9, 60), minute(2, 60), minute(1, 60)]), NOW)

    assert the_last(trend, 9) == [1.0, *[None] * 6, 1.0, 1.0]
    assert trend.ready[-9:] == [1, *[None] * 6, 1, 1]


def test_one_minute_that_is_missing_is_no_gap_one_worker_took_over_from_another():
    trend = read_trend(Rows(minute=[minute(3, 60), minute(1, 60)]), NOW)

    assert the_last(trend, 3) == [1.0, 0.0, 1.0]
    assert trend.ready[-3:] == [1, 1, 1]


def test_after_a_row_without_jobs_silence_is_zero():
    trend = read_trend(Rows(minute=[minute(9, 60, ready=0)]), NOW)

    assert the_last(trend, 9) == [1.0, *[0.0] * 8]


def test_before_the_first_row_nothing_is_known():
    assert set(read_trend(Rows(), NOW).succeeded) == {None}
    assert not read_trend(Rows(), NOW).known


def test_longer_ranges_are_of_longer_spans_and_of_the_minutes_after_them():
    hours = [
        SpanStats(
            at=NOW - HOUR * number,
            seconds=3600,
            read_at=NOW,
            tasks=[TaskSpan("mail", "mail:send", 3600)],
            queues=[QueueSpan("mail", 1)],
            holds=True,
        )
        for number in (3, 2)
    ]

    trend = read_trend(Rows(hour=hours, minute=[minute(70, 60), minute(2, 1800)]), NOW, "fortnight")

    assert the_last(trend, 3) == [1.0, 1.0, 0.5]
    assert (len(trend.at), trend.step) == (336, 3600)


def test_of_one_task_queue_or_worker():
    span = minute(1, 60)
    span.tasks.append(TaskSpan("media", "media:resize", 120))
    span.workers = [WorkerSpan("one", 60, 6, 30.0), WorkerSpan("two", 120, 0, 12.0)]
    rows = Rows(minute=[span])

    def of(**only: str) -> Trend:
        return read_trend(rows, NOW, "hour", TrendFilter(**only))

    assert the_last(of(task="media:resize"), 1) == [2.0]
    assert the_last(of(queue="mail"), 1) == [1.0]
    worker = of(worker="one")
    assert (worker.succeeded[-1], worker.failed[-1], worker.run[-1]) == (0.9, 0.1, 0.5)
    assert of(task="media:resize").ready[-1] is None
    assert of().workers == ["one", "two"]


def test_deploys_starts_and_pauses_are_marked():
    paused = Event(
        position="1",
        kind="rule",
        at=NOW - 90,
        data=b'{"kind":"pause","queue":"mail","author":"ada","set":true}',
    )
    rows = Rows((paused,), minute=[minute(3, started=2), minute(1, started=1, code=["abc"])])

    marks = read_trend(rows, NOW).marks

    assert [mark.kind for mark in marks] == ["start", "pause", "deploy"]
    assert [mark.says for mark in marks] == [
        "2 workers started",
        "mail paused by ada",
        "new code: abc",
    ]


def test_an_unknown_range_is_refused_with_those_that_there_are():
    with pytest.raises(Refused, match="hour, day, fortnight"):
        read_trend(Rows(), NOW, "year")


def test_slow_today_is_said_with_how_slow():
    usual = [
        SpanStats(
            at=NOW - HOUR * number,
            seconds=3600,
            read_at=NOW,
            tasks=[TaskSpan("mail", "mail:send", 1000, run={700: 1000})],
        )
        for number in range(2, 200)
    ]
    slow = minute(5)
    slow.tasks = [TaskSpan("mail", "mail:send", 50, run={760: 50})]
    rows = Rows(hour=usual, minute=[slow])

    says = slow_text(rows, NOW, TrendFilter(task="mail:send"))

    assert says is not None
    assert "3.3 times as long as in the two weeks before" in says
    assert slow_text(rows, NOW, TrendFilter(task="other")) is None
    slow.tasks = [TaskSpan("mail", "mail:send", 50, run={705: 50})]
    assert slow_text(rows, NOW, TrendFilter(task="mail:send")) is None
