"""The report: the same answers on a page, in a terminal and for programs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.report.formatting import (
    brief,
    count_text,
    interval_text,
    seconds_text,
    share_text,
    ticks,
)
from penstock.spark.pipelines.report.page import page
from penstock.spark.pipelines.report.queries import MOST, ReportData, interval_for, query_report
from penstock.spark.pipelines.report.rollup_source import OPEN_JOBS, LakeRollups
from penstock.spark.pipelines.report.sections import sections
from penstock.spark.pipelines.report.svg_plots import bars, lines
from penstock.spark.pipelines.rollups.build import build, build_here
from penstock.spark.pipelines.rollups.tables import DAY, HOUR, MINUTE
from tests.spark.pipelines.history import NOON, a_gauge, an_attempt, an_event, at, put_rows

VOID = {"meta", "line", "rect", "circle", "polyline"}


class Checked(HTMLParser):
    """Every element that is opened is closed; what is asked of elsewhere is remembered."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.asked: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.asked += [value for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID or tag in {"rect", "circle"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def told_nobody(*told: object) -> None:
    """Progress that nobody hears of."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake in which every question has an answer."""
    bad = {"state": "failed", "reason": "error", "error": "Boom: <script>alert(1)</script> 7"}
    flow = {"flow": "f", "queue": "media"}
    lake = Lake(tmp_path / "lake")
    decided = '{"schedule": "nightly", "says": "enqueued", "slot": "2026-11-15T12:00:00Z"}'
    put_rows(lake, "events", an_event(1, "schedule", job="job-1", data=decided))
    put_rows(lake, "gauges", a_gauge(1, ready=4, oldest=2.5))
    put_rows(
        lake,
        "attempts",
        an_attempt(1, tags={"tenant": "<b>"}),
        an_attempt(2, started_at=at(60), ended_at=at(90)),
        an_attempt(3, key="backfill", tags={"partition": "7"}, **bad),
        an_attempt(4, **flow, node="first", task="media:cut"),
        an_attempt(5, **flow, node="f", task="media:join", started_at=at(5), ended_at=at(3700)),
    )
    opened = {"ready": 1, "scheduled": 0, "waiting": 0, "running": 0, "oldest": 9.0}
    row = {"queue": "mail", **opened, "at": at(9), "day": at(9).date()}
    lake.replace_rows(OPEN_JOBS, lambda _before: pa.Table.from_pylist([row]))
    build(lake, build_here, told_nobody)
    return lake


def test_every_question_is_answered_from_rollups(lake):
    answers = query_report(LakeRollups(lake))

    assert (answers.first_at, answers.last_at) == (NOON.timestamp(), NOON.timestamp() + 3660)
    assert answers.every == MINUTE
    assert (answers.total["attempts"], answers.total["failed"]) == (5, 1)
    assert {row["task"] for row in answers.tasks} == {"mail:send", "media:cut", "media:join"}
    assert answers.failures[0]["signature"] == "Boom: <script>alert(#)</script> #"
    assert [row["kind"] for row in answers.flows] == ["media:join"]
    assert [row["task"] for row in answers.steps] == ["media:join", "media:cut"]
    assert answers.schedules[0]["late_longest"] == pytest.approx(1, rel=0.01)
    assert answers.depth[0]["ready"] == 4
    assert (answers.open_jobs[0]["ready"], answers.open_jobs[0]["oldest"]) == (1, 9)
    assert answers.workers[0]["attempts"] == 6  # one of the five ran in two hours
    assert {row["queue"] for row in answers.forecast} == {"mail", "media"}
    answers.source, answers.where = "store", "sqlite:///jobs.db"
    text = page(answers)
    found = Checked(text)
    assert "script" not in found.tags
    assert all(target.startswith("#") for target in found.asked)
    assert "http" not in text
    said = " ".join(found.texts)
    assert "from the store sqlite:///jobs.db" in said
    for section in sections(answers).values():
        assert section.question in said
        assert section.rows
    assert "Boom: <script>alert(#)</script> #" in said


def test_an_empty_history_is_a_page_that_says_so(tmp_path):
    lake = Lake(tmp_path / "lake")
    put_rows(lake, "events", an_event(1))
    answers = query_report(LakeRollups(lake))
    answers.source = "lake"

    said = " ".join(Checked(page(answers)).texts)
    assert "No attempt has ended in this time; from the lake." in said
    assert said.count("No rows in this history.") == len(sections(answers))


def test_a_page_of_one_task_says_so():
    assert "Only the task mail:send." in page(ReportData(task="mail:send", source="lake"))


def test_more_rows_than_people_read_are_said_to_be_more():
    row = {"tag": "t", "value": "v", "jobs": 1, "wait_p95": None, "run_p95": 0.0, "busy": 1.0}
    answers = ReportData(tags=[{**row, "failed": 0}] * MOST, source="lake")

    assert f"{MOST - 12} more (the first {MOST} in all)" in page(answers)


@pytest.mark.parametrize(
    ("span", "every"),
    [(0, MINUTE), (3 * HOUR, MINUTE), (DAY, 15 * MINUTE), (7 * DAY, HOUR), (400 * DAY, 7 * DAY)],
)
def test_a_plot_has_no_more_points_than_one_can_tell_apart(span, every):
    assert interval_for(span) == every


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (59.96, "60.0 s"),
        (90, "1.5 min"),
        (4800, "80 min"),
        (86400 * 2, "2 d"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(MINUTE, "1 min"), (15 * MINUTE, "15 min"), (HOUR, "1 h"), (DAY, "1 d")]
)
def test_a_stretch_is_of_the_largest_unit_that_is_whole(seconds, text):
    assert interval_text(seconds) == text


def test_numbers_as_people_read_them():
    assert (count_text(1234567), brief(1_500_000), brief(12), share_text(1, 8)) == (
        "1,234,567",
        "1.5 M",
        "12",
        "12.5 %",
    )
    assert share_text(1, 0) == "-"


@pytest.mark.parametrize(
    ("most", "seconds", "marks"),
    [
        (0, False, [0, 1]),
        (3, False, [0, 1, 2, 3]),
        (970, False, [0, 250, 500, 750, 1000]),
        (200, True, [0, 60, 120, 180, 240]),
        (0.004, True, [0, 0.001, 0.002, 0.003, 0.004]),
    ],
)
def test_an_axis_is_divided_at_round_numbers(most, seconds, marks):
    assert ticks(most, seconds=seconds) == pytest.approx(marks)


@pytest.mark.parametrize("every", [MINUTE, HOUR, DAY])
@pytest.mark.parametrize("points", [1, 2, 50, 180])
def test_the_labels_of_an_axis_do_not_touch(every, points):
    values = {NOON.timestamp() + every * n: float(n % 7) for n in range(points)}

    for drawn in (
        bars("a", {"mail": values}, every, brief),
        lines("a", {"mail": values}, every, seconds_text, seconds=True),
    ):
        places = [
            (float(x), len(text))
            for x, text in re.findall(r'class="time" x="([\d.]+)" y="[\d.]+">([^<]*)<', drawn)
        ]
        # A sign of this size is 7 wide at the most; the text is centred.
        edges = [(x - 3.5 * length, x + 3.5 * length) for x, length in places]
        assert all(left[1] < right[0] for left, right in pairwise(edges))
        assert all(left > 0 and right < 960 for left, right in edges)


def test_a_line_is_broken_where_nothing_is_known():
    known = {0.0: 1.0, 60.0: 2.0, 300.0: 3.0}

    drawn = lines("a", {"mail": known}, 60, brief)

    assert drawn.count("<polyline") == 1
    assert drawn.count('class="point c0"') == 1
    assert lines("a", {"mail": {}}, 60, brief) == ""
