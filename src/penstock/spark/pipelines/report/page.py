"""The report as one HTML page: no script, nothing from a network, light or dark as one has it.

Everything that comes from a history is escaped: names and errors are anybody's text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from penstock.spark.pipelines.report.formatting import (
    brief,
    count_text,
    moment_text,
    seconds_text,
    share_text,
    stretch_text,
)
from penstock.spark.pipelines.report.queries import MOST, Answers, Row
from penstock.spark.pipelines.report.sections import Column, Section, sections
from penstock.spark.pipelines.report.svg_plots import COLOURS, bars, legend, lines

_STYLE = Path(__file__).with_name("page.css")
_AT_FIRST = 12  # rows of a table; the others are a click away
_SHORT = 36  # signs that stay on one line: an id does, an error may not
_BAR = 70  # pixels of a bar in a table
_NOTHING = '<p class="none">Nothing of the kind is in this history.</p>'


def page(answers: Answers) -> str:
    """The whole page."""
    tables = sections(answers)
    queues = _busiest(answers)
    parts = [
        _part("load", tables["tasks"], _load_plots(answers, queues)),
        _part("failures", tables["failures"], _failure_plot(answers, queues)),
        _part("depth", tables["depth"], _depth_plots(answers, queues)),
        _part("open_jobs", tables["open_jobs"], ""),
        _part("flows", tables["flows"], ""),
        _part("steps", tables["steps"], ""),
        _part("forecast", tables["forecast"], ""),
        _part("schedules", tables["schedules"], ""),
        _part("tags", tables["tags"], ""),
        _part("workers", tables["workers"], ""),
    ]
    links = "".join(
        f'<a href="#{name}">{escape(tables[table].question)}</a>'
        for name, table in (
            ("load", "tasks"),
            ("failures", "failures"),
            ("depth", "depth"),
            ("open_jobs", "open_jobs"),
            ("flows", "flows"),
            ("forecast", "forecast"),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Penstock report</title><style>\n{_STYLE.read_text(encoding='utf-8')}</style>"
        "</head>"
        f"<body><h1>Penstock report</h1><p>{escape(heading(answers))}</p>"
        f"<nav>{links}</nav>{_tiles(answers)}{''.join(parts)}"
        f"<footer>Made {moment_text(answers.made_at)} UTC. All times are UTC.</footer>"
        "</body></html>\n"
    )


def heading(answers: Answers) -> str:
    """What the report is about, and where it comes from."""
    origin = f"answered from the {answers.source} {answers.where}".strip()
    if answers.first_at is None:
        return f"No attempt has ended yet; {origin}.{_missing(answers)}"
    return (
        f"{moment_text(answers.first_at)} to {moment_text(answers.last_at)} UTC, {origin}."
        f" A point of a plot stands for {stretch_text(answers.every)}.{_missing(answers)}"
    )


def _missing(answers: Answers) -> str:
    if not answers.gaps:
        return ""
    rows = [gap["rows"] for gap in answers.gaps]
    counted = sum(number or 0 for number in rows)
    many = f"{'at least ' if None in rows else ''}{count_text(counted)}" if counted else "some"
    return f" Missing: {many} of its rows, which the store pruned before the lake had them."


def _tiles(answers: Answers) -> str:
    total = answers.total
    if answers.first_at is None:
        return ""
    tiles = (
        (count_text(total["jobs"]), "jobs ended", False),
        (count_text(total["attempts"]), "attempts", False),
        (share_text(total["failed"], total["jobs"]), "of jobs failed", total["failed"] > 0),
        (count_text(total["retries"]), "retries", False),
        (count_text(total["lapses"]), "lapses", total["lapses"] > 0),
        (seconds_text(total["wait_p50"]), "median wait", False),
        (seconds_text(total["wait_p99"]), "wait, p99", False),
        (seconds_text(total["run_p50"]), "median run", False),
        (seconds_text(total["run_p99"]), "run, p99", False),
    )
    return '<div class="tiles">{}</div>'.format(
        "".join(
            f'<div class="tile{" bad" if bad else ""}"><b>{value}</b><span>{name}</span></div>'
            for value, name, bad in tiles
        )
    )


def _part(name: str, section: Section, plots: str) -> str:
    return (
        f'<section id="{name}"><h2>{escape(section.question)}</h2>{plots}'
        f"<p>{escape(section.explained)}</p>{_table(section)}</section>"
    )


def _table(section: Section) -> str:
    if not section.rows:
        return _NOTHING
    shown, more = section.rows[:_AT_FIRST], section.rows[_AT_FIRST:]
    text = _rows(section, shown)
    if more:
        cut = f" (the first {MOST} in all)" if len(section.rows) >= MOST else ""
        text += f"<details><summary>{len(more)} more{cut}</summary>{_rows(section, more)}</details>"
    return text


def _rows(section: Section, rows: Sequence[Row]) -> str:
    head = "".join(
        f'<th class="{"number" if column.number else "name"}">{escape(column.head)}</th>'
        for column in section.columns
    )
    body = "".join(
        f"<tr>{''.join(_cell(column, row) for column in section.columns)}</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _cell(column: Column, row: Row) -> str:
    text = column.text(row)
    kind = "number" if column.number else "name short" if len(text) <= _SHORT else "name"
    bar = ""
    if column.part is not None:
        bar = f'<span class="bar" style="width: {_BAR * column.part(row):.0f}px"></span>'
    return f'<td class="{kind}">{bar}{escape(text)}</td>'


def _busiest(answers: Answers) -> list[str]:
    """The queues that plots show: no more than there are colours."""
    sizes: dict[str, float] = {}
    for row in answers.over_time:
        sizes[row["queue"]] = sizes.get(row["queue"], 0) + row["attempts"]
    for row in answers.depth:
        sizes.setdefault(row["queue"], row["ready"])
    return sorted(sizes, key=lambda queue: (-sizes[queue], queue))[:COLOURS]


Made = Callable[[str, dict[str, dict[float, float]]], str]


def _plot(title: str, rows: Sequence[Row], names: Sequence[str], value: str, make: Made) -> str:
    series: dict[str, dict[float, float]] = {name: {} for name in names}
    for row in rows:
        if row["queue"] in series and row[value] is not None:
            series[row["queue"]][row["at"]] = row[value]
    drawn = make(title, series)
    return f"<h3>{escape(title)}</h3>{drawn}" if drawn else ""


def _load_plots(answers: Answers, queues: Sequence[str]) -> str:
    every = answers.every

    def counts(title: str, series: dict[str, dict[float, float]]) -> str:
        return bars(title, series, every, brief)

    def spans(title: str, series: dict[str, dict[float, float]]) -> str:
        return lines(title, series, every, seconds_text, seconds=True)

    rows = answers.over_time
    if not rows:
        return ""
    plots = [
        _plot(f"Attempts that ended, per {stretch_text(every)}", rows, queues, "attempts", counts),
        _plot("Wait from due to started, 95th percentile", rows, queues, "wait_p95", spans),
        _plot("Run from started to ended, 95th percentile", rows, queues, "run_p95", spans),
    ]
    return _with_legend(answers, queues, plots)


def _failure_plot(answers: Answers, queues: Sequence[str]) -> str:
    def counts(title: str, series: dict[str, dict[float, float]]) -> str:
        return bars(title, series, answers.every, brief)

    rows = [
        {**row, "wrong": row["failed"] + row["retries"] + row["lapses"]}
        for row in answers.over_time
    ]
    rows = [row for row in rows if row["wrong"]]
    if not rows:
        return ""
    title = f"Failed jobs, retries and lapses, per {stretch_text(answers.every)}"
    return _with_legend(answers, queues, [_plot(title, rows, queues, "wrong", counts)])


def _depth_plots(answers: Answers, queues: Sequence[str]) -> str:
    def counts(title: str, series: dict[str, dict[float, float]]) -> str:
        return lines(title, series, answers.every, brief)

    def spans(title: str, series: dict[str, dict[float, float]]) -> str:
        return lines(title, series, answers.every, seconds_text, seconds=True)

    if not answers.depth:
        return ""
    plots = [
        _plot("Jobs ready to run, most at a time", answers.depth, queues, "ready", counts),
        _plot("How long the oldest ready job had waited", answers.depth, queues, "oldest", spans),
    ]
    return _with_legend(answers, queues, plots)


def _with_legend(answers: Answers, queues: Sequence[str], plots: Sequence[str]) -> str:
    known = {row["queue"] for row in (*answers.over_time, *answers.depth)}
    left = len(known) - len(queues)
    more = f"<p>The {len(queues)} busiest queues; {left:,} more are in tables.</p>" if left else ""
    return legend([f"queue {queue}" for queue in queues]) + more + "".join(plots)
