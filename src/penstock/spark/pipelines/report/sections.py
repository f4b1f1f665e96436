"""The tables of a report: their headings, explanations and columns, for page and terminal alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.spark.pipelines.report.formatting import (
    NONE,
    count_text,
    moment_text,
    seconds_text,
    share_text,
)
from penstock.spark.pipelines.report.queries import ReportData, Row


class Column(msgspec.Struct, frozen=True):
    """One column: its heading, and the text of a cell."""

    head: str
    text: Callable[[Row], str]
    number: bool = True  # aligned right
    part: Callable[[Row], float] | None = None  # a fraction, drawn as a bar on the page
    detail: bool = False  # left out in narrow terminals


class Section(NamedTuple):
    """One question, and the rows that answer it."""

    question: str
    explained: str
    columns: Sequence[Column]
    rows: Sequence[Row]


def sections(data: ReportData) -> dict[str, Section]:
    """Every table of the report, in the order of the page, by its name there."""
    return {
        "load": _tasks(data),
        "weeks": _weeks(data),
        "failures": _failures(data),
        "depth": _depth(data),
        "open_jobs": _open_jobs(data),
        "flows": _flows(data),
        "steps": _steps(data),
        "backfills": _backfills(data),
        "forecast": _forecast(data),
        "schedules": _schedules(data),
        "tags": _tags(data),
        "workers": _workers(data),
    }


def _tasks(data: ReportData) -> Section:
    return Section(
        "How much, how long does it wait, how long does it run?",
        "By task and version, the busiest first. Wait: from due to started; run: from started to"
        " ended; p50, p95, p99: percentiles.",
        (
            _name("queue"),
            _name("task"),
            _count("version", detail=True),
            _count("jobs"),
            _count("attempts", detail=True),
            _rate(),
            *_percentiles("wait"),
            *_percentiles("run"),
            _seconds("busy", detail=True),
            _count("failed"),
            _count("retries"),
            _count("lapses", detail=True),
        ),
        data.tasks,
    )


def _weeks(data: ReportData) -> Section:
    return Section(
        "What has changed since last week?",
        "The last seven days, and in brackets the change from the seven days before them.",
        (
            _name("queue"),
            _name("task"),
            _versus("jobs", count_text),
            _versus("success_rate", lambda rate: share_text(rate or 0, 1), "success"),
            _versus("wait_p95", seconds_text, "wait p95"),
            _versus("run_p95", seconds_text, "run p95"),
        ),
        data.weeks,
    )


def _backfills(data: ReportData) -> Section:
    return Section(
        "How are backfills doing?",
        "Partitions of a task that ended, with every run of each.",
        (
            _name("value", "task"),
            _count("jobs", "partitions"),
            _rate(),
            _count("failed"),
            _count("retries"),
            _seconds("run_p95", "run p95"),
            _seconds("busy"),
        ),
        data.backfills,
    )


def _failures(data: ReportData) -> Section:
    total = sum(row["attempts"] for row in data.failures) or 1
    return Section(
        "What fails, and why?",
        "Attempts that failed or lapsed, by the headline of their error without numbers and quoted"
        " words. Ended: attempts after which the job was failed for good.",
        (
            _name("task"),
            _name("reason", detail=True),
            _name("signature", "error"),
            Column(
                "attempts",
                lambda row: count_text(row["attempts"]),
                part=lambda row: row["attempts"] / total,
            ),
            _count("ended"),
            _moment("first_at", "first (UTC)", detail=True),
            _moment("last_at", "last (UTC)"),
            _name("example", "for example", detail=True),
        ),
        data.failures,
    )


def _depth(data: ReportData) -> Section:
    queues: dict[str, Row] = {}
    for row in data.depth:
        queue = queues.setdefault(row["queue"], {"queue": row["queue"], "ready": 0, "oldest": None})
        if row["ready"] >= queue["ready"]:
            queue["ready"], queue["at"] = row["ready"], row["at"]
        if row["oldest"] is not None:
            queue["oldest"] = max(row["oldest"], queue["oldest"] or 0.0)
        queue["running"] = max(row["running"], queue.get("running", 0))
    return Section(
        "How deep was the queue?",
        "The highest number of jobs that were ready and had no worker, and how long the oldest of"
        " them had waited, sampled every minute.",
        (
            _name("queue"),
            _count("ready", "most ready"),
            _moment("at", "when (UTC)"),
            _seconds("oldest", "oldest"),
            _count("running", "most running"),
        ),
        sorted(queues.values(), key=lambda row: -row["ready"]),
    )


def _open_jobs(data: ReportData) -> Section:
    at = min((row["at"] for row in data.open_jobs), default=None)
    return Section(
        "What was open at the end?",
        "Jobs that had not ended"
        + ("" if at is None else f" at {moment_text(at)} UTC")
        + ". Ready: due, with no worker yet; scheduled: due later; waiting: for other jobs or a"
        " signal. Oldest ready: how long the oldest ready job had waited.",
        (
            _name("queue"),
            _count("ready"),
            _count("scheduled"),
            _count("waiting"),
            _count("running"),
            _seconds("oldest", "oldest ready"),
        ),
        data.open_jobs,
    )


def _flows(data: ReportData) -> Section:
    return Section(
        "Which flows are slow?",
        "By the task of a flow's final job; from enqueued to the end of its last job.",
        (
            _name("kind", "flow"),
            _count("flows"),
            _count("bad", "with failures"),
            _seconds("elapsed_p50", "p50"),
            _seconds("elapsed_p95", "p95"),
            _seconds("elapsed_longest", "longest"),
        ),
        data.flows,
    )


def _steps(data: ReportData) -> Section:
    kinds = list(dict.fromkeys(row["kind"] for row in data.steps))
    return Section(
        "On which step?",
        "The steps on the critical path of flows: mean run of a step with its retries, and mean gap"
        " before it, in which it was due and no worker took it.",
        (
            _name("kind", "flow"),
            _name("task", "step"),
            _count("paths", "times"),
            _seconds("run", "mean run"),
            _seconds("gap", "mean gap"),
            _count("again", "retries"),
            Column(
                "share",
                lambda row: share_text(row["share"], 1),
                part=lambda row: row["share"],
            ),
        ),
        # Grouped by kind of flow, the kind with the longest step first.
        sorted(data.steps, key=lambda row: (kinds.index(row["kind"]), -row["spent"])),
    )


def _schedules(data: ReportData) -> Section:
    return Section(
        "Are schedules on time?",
        "Delay from the nominal time of a slot to the first start of its job.",
        (
            _name("schedule"),
            _count("enqueued"),
            _count("skipped"),
            _seconds("late_p50", "late p50"),
            _seconds("late_p99", "late p99"),
            _seconds("late_longest", "latest"),
        ),
        data.schedules,
    )


def _tags(data: ReportData) -> Section:
    return Section(
        "Who is it for?",
        "By tag; an attempt with several tags counts under each.",
        (
            _name("tag"),
            _name("value"),
            _count("jobs"),
            _seconds("wait_p95", "wait p95"),
            _seconds("run_p95", "run p95"),
            _seconds("busy"),
            _count("failed"),
        ),
        data.tags,
    )


def _workers(data: ReportData) -> Section:
    return Section(
        "How busy are workers?",
        "At a time: jobs that ran concurrently, on average over the busiest hour.",
        (
            _name("worker"),
            _count("attempts"),
            _seconds("busy"),
            _count("hours", "busy hours"),
            Column("at a time", lambda row: f"{row['at_a_time']:.2f}"),
            _moment("last_at", "last hour (UTC)"),
        ),
        data.workers,
    )


def _forecast(data: ReportData) -> Section:
    return Section(
        "What will next week need?",
        "A linear trend over the whole days of history (their mean, if fewer than seven). Slots:"
        " jobs that must be able to run at a time in the busiest hour, with workers 70 % busy.",
        (
            _name("queue"),
            _count("days", "days of history"),
            _count("daily", "attempts a day"),
            _count("next_week", "next 7 days"),
            Column("growth", lambda row: f"{100 * (row['growth'] - 1):+.0f} %"),
            Column("peak at a time", lambda row: f"{row['peak_at_a_time']:.2f}"),
            _count("slots"),
        ),
        data.forecast,
    )


def _name(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: _words(row[name]), number=False, detail=detail)


def _count(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: count_text(row[name]), detail=detail)


def _seconds(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: seconds_text(row[name]), detail=detail)


def _moment(name: str, head: str, *, detail: bool = False) -> Column:
    return Column(head, lambda row: moment_text(row.get(name)), number=False, detail=detail)


def _rate() -> Column:
    return Column("success", lambda row: share_text(row["succeeded"], row["jobs"]))


def _versus(name: str, text: Callable[[Any], str], head: str | None = None) -> Column:
    """A value of this week, and by how much it is above that of last week."""

    def shown(row: Row) -> str:
        earlier: Row | None = row["before"]
        now, before = row[name], None if earlier is None else earlier[name]
        if now is None or not before:
            return text(now)
        return f"{text(now)} ({100 * (now / before - 1):+.0f} %)"

    return Column(head or name, shown)


def _percentiles(what: str) -> list[Column]:
    return [
        _seconds(f"{what}_{rank}", f"{what} {rank}", detail=rank == "p99")
        for rank in ("p50", "p95", "p99")
    ]


def _words(value: Any) -> str:
    return NONE if value is None or value == "" else str(value)
