"""The tables of a report: which questions, which columns, in which words.

One description for the page and the terminal alike.
"""

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
from penstock.spark.pipelines.report.queries import Answers, Row


class Column(msgspec.Struct, frozen=True):
    """One column: its head, and what stands in it."""

    head: str
    text: Callable[[Row], str]
    number: bool = True  # set to the right
    part: Callable[[Row], float] | None = None  # of 1: on a page it is drawn as a bar as well
    detail: bool = False  # left out where there is little room


class Section(NamedTuple):
    """One question, and the rows that answer it."""

    question: str
    explained: str
    columns: Sequence[Column]
    rows: Sequence[Row]


def sections(answers: Answers) -> dict[str, Section]:
    """Every table of the report, by a short name."""
    return {
        "tasks": _tasks(answers),
        "failures": _failures(answers),
        "depth": _depth(answers),
        "open_jobs": _open_jobs(answers),
        "flows": _flows(answers),
        "steps": _steps(answers),
        "schedules": _schedules(answers),
        "tags": _tags(answers),
        "workers": _workers(answers),
        "forecast": _forecast(answers),
    }


def _tasks(answers: Answers) -> Section:
    return Section(
        "How much, how long does it wait, how long does it run?",
        "By task and version, those first that kept workers busiest. Wait: from due to started;"
        " run: from started to ended; 50, 95 and 99 of 100 are shorter.",
        (
            _name("queue"),
            _name("task"),
            _count("version", detail=True),
            _count("jobs"),
            _count("attempts", detail=True),
            *_ranks("wait"),
            *_ranks("run"),
            _seconds("busy", detail=True),
            _count("failed"),
            _count("retries"),
            _count("lapses", detail=True),
        ),
        answers.tasks,
    )


def _failures(answers: Answers) -> Section:
    all_of_them = sum(row["attempts"] for row in answers.failures) or 1
    return Section(
        "What fails, and why?",
        "Attempts that went wrong, by the headline of their error with numbers and quoted words"
        " left out. Ended: those after which the job was failed for good.",
        (
            _name("task"),
            _name("reason", detail=True),
            _name("signature", "error"),
            Column(
                "attempts",
                lambda row: count_text(row["attempts"]),
                part=lambda row: row["attempts"] / all_of_them,
            ),
            _count("ended"),
            _moment("first_at", "first (UTC)", detail=True),
            _moment("last_at", "last (UTC)"),
            _name("example", "for example", detail=True),
        ),
        answers.failures,
    )


def _depth(answers: Answers) -> Section:
    queues: dict[str, Row] = {}
    for row in answers.depth:
        queue = queues.setdefault(row["queue"], {"queue": row["queue"], "ready": 0, "oldest": None})
        if row["ready"] >= queue["ready"]:
            queue["ready"], queue["at"] = row["ready"], row["at"]
        if row["oldest"] is not None:
            queue["oldest"] = max(row["oldest"], queue["oldest"] or 0.0)
        queue["running"] = max(row["running"], queue.get("running", 0))
    return Section(
        "How deep was the queue?",
        "The most jobs that were ready to run and had no worker, and how long the oldest of them"
        " had waited, as counted every minute.",
        (
            _name("queue"),
            _count("ready", "most ready"),
            _moment("at", "when (UTC)"),
            _seconds("oldest", "oldest"),
            _count("running", "most running"),
        ),
        sorted(queues.values(), key=lambda row: -row["ready"]),
    )


def _open_jobs(answers: Answers) -> Section:
    at = min((row["at"] for row in answers.open_jobs), default=None)
    return Section(
        "What was open at the end?",
        "Jobs that had not ended"
        + ("" if at is None else f" at {moment_text(at)} UTC")
        + ". Ready: due, with no worker yet; scheduled: due later; waiting: for other jobs or a"
        " signal. Oldest: how long the first of the ready ones had waited.",
        (
            _name("queue"),
            _count("ready"),
            _count("scheduled"),
            _count("waiting"),
            _count("running"),
            _seconds("oldest", "oldest ready"),
        ),
        answers.open_jobs,
    )


def _flows(answers: Answers) -> Section:
    return Section(
        "Which flows are slow?",
        "By the task that a flow ends with; from the moment it was enqueued to its last end.",
        (
            _name("kind", "flow"),
            _count("flows"),
            _count("bad", "not well"),
            _seconds("elapsed_p50", "p50"),
            _seconds("elapsed_p95", "p95"),
            _seconds("elapsed_longest", "longest"),
        ),
        answers.flows,
    )


def _steps(answers: Answers) -> Section:
    kinds = list(dict.fromkeys(row["kind"] for row in answers.steps))
    return Section(
        "On which step?",
        "The steps that flows waited for to the end (the critical path): the mean time that a step"
        " took there, with its retries, and the gap before it, in which it was due and no worker"
        " took it.",
        (
            _name("kind", "flow"),
            _name("task", "step"),
            _count("paths", "times"),
            _seconds("run", "mean run"),
            _seconds("gap", "mean gap"),
            _count("again", "tried again"),
            Column(
                "share",
                lambda row: share_text(row["share"], 1),
                part=lambda row: row["share"],
            ),
        ),
        # The kinds in the order of their longest step, the steps of each together.
        sorted(answers.steps, key=lambda row: (kinds.index(row["kind"]), -row["spent"])),
    )


def _schedules(answers: Answers) -> Section:
    return Section(
        "Are schedules on time?",
        "From the nominal time of a slot to the first start of its job.",
        (
            _name("schedule"),
            _count("enqueued"),
            _count("skipped"),
            _seconds("late_p50", "late p50"),
            _seconds("late_p99", "late p99"),
            _seconds("late_longest", "latest"),
        ),
        answers.schedules,
    )


def _tags(answers: Answers) -> Section:
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
        answers.tags,
    )


def _workers(answers: Answers) -> Section:
    return Section(
        "How busy are workers?",
        "At a time: jobs that ran beside each other, in the busiest hour on average.",
        (
            _name("worker"),
            _count("attempts"),
            _seconds("busy"),
            _count("hours", "hours at work"),
            Column("at a time", lambda row: f"{row['at_a_time']:.2f}"),
            _moment("last_at", "last hour (UTC)"),
        ),
        answers.workers,
    )


def _forecast(answers: Answers) -> Section:
    return Section(
        "What will next week need?",
        "A straight line through the whole days there are (level, with fewer than seven of them)."
        " Slots: jobs that must be able to run at a time in the busiest hour, with workers 70 %"
        " busy.",
        (
            _name("queue"),
            _count("days", "days of history"),
            _count("daily", "attempts a day"),
            _count("next_week", "next 7 days"),
            Column("growth", lambda row: f"{100 * (row['growth'] - 1):+.0f} %"),
            Column("peak at a time", lambda row: f"{row['peak_at_a_time']:.2f}"),
            _count("slots"),
        ),
        answers.forecast,
    )


def _name(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: _words(row[name]), number=False, detail=detail)


def _count(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: count_text(row[name]), detail=detail)


def _seconds(name: str, head: str | None = None, *, detail: bool = False) -> Column:
    return Column(head or name, lambda row: seconds_text(row[name]), detail=detail)


def _moment(name: str, head: str, *, detail: bool = False) -> Column:
    return Column(head, lambda row: moment_text(row.get(name)), number=False, detail=detail)


def _ranks(what: str) -> list[Column]:
    return [
        _seconds(f"{what}_{rank}", f"{what} {rank}", detail=rank == "p99")
        for rank in ("p50", "p95", "p99")
    ]


def _words(value: Any) -> str:
    return NONE if value is None or value == "" else str(value)
