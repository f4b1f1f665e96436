"""The report as one HTML page: no scripts, no network, light or dark as the browser is set.

Everything from the history is escaped: names and errors are untrusted text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from penstock.spark.pipelines.report.formatting import (
    brief,
    count_text,
    interval_text,
    moment_text,
    seconds_text,
    share_text,
)
from penstock.spark.pipelines.report.queries import MOST, ReportData, Row
from penstock.spark.pipelines.report.sections import Column, Section, sections
from penstock.spark.pipelines.report.svg_plots import COLOURS, Series, bars, legend, lines

_STYLE = Path(__file__).with_name("page.css")
_AT_FIRST = 12  # rows of a table; the others are a click away
_SHORT = 36  # characters that are not wrapped: an id fits, an error may not
_BAR = 70  # pixels of a bar in a table
_Plot = tuple[str, str, Callable[[str, Series, float], str]]  # title, column, how to draw it
_EMPTY = '<p class="none">No rows in this history.</p>'


def page(data: ReportData) -> str:
    """The whole page."""
    queues = _busiest(data)
    plots = {
        "load": _load_plots(data, queues),
        "failures": _failure_plot(data, queues),
        "depth": _depth_plots(data, queues),
    }
    tables = sections(data)
    links = "".join(
        f'<a href="#{name}">{escape(table.question)}</a>' for name, table in tables.items()
    )
    parts = "".join(
        f'<section id="{name}"><h2>{escape(table.question)}</h2>{plots.get(name, "")}'
        f"<p>{escape(table.explained)}</p>{_table(table)}</section>"
        for name, table in tables.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Penstock report</title><style>\n{_STYLE.read_text(encoding='utf-8')}</style>"
        "</head>"
        f"<body><h1>Penstock report</h1><p>{escape(heading(data))}</p>"
        f"<nav>{links}</nav>{_tiles(data)}{parts}"
        f"<footer>Made {moment_text(data.made_at)} UTC. All times are UTC.</footer>"
        "</body></html>\n"
    )


def heading(data: ReportData) -> str:
    """The time that the report covers, and where its data comes from."""
    origin = f"from the {data.source} {data.where}".strip()
    asked = {"task": data.task, "queue": data.queue}
    only = "".join(f" Only the {name} {value}." for name, value in asked.items() if value)
    if data.first_at is None:
        return f"No attempt has ended in this time; {origin}.{only}{_missing(data)}"
    return (
        f"{moment_text(data.first_at)} to {moment_text(data.last_at)} UTC, {origin}.{only}"
        f" Each point of a plot covers {interval_text(data.every)}.{_missing(data)}"
    )


def _missing(data: ReportData) -> str:
    if not data.gaps:
        return ""
    rows = [gap["rows"] for gap in data.gaps]
    counted = sum(number or 0 for number in rows)
    many = f"{'at least ' if None in rows else ''}{count_text(counted)}" if counted else "some"
    return f" Missing: {many} rows, which the store pruned before they were exported."


def _tiles(data: ReportData) -> str:
    total = data.total
    if data.first_at is None:
        return ""
    tiles = (
        (count_text(total["jobs"]), "jobs ended", False),
        (count_text(total["attempts"]), "attempts", False),
        (share_text(total["succeeded"], total["jobs"]), "of jobs succeeded", total["failed"] > 0),
        (count_text(total["busiest_hour"]), "attempts in the busiest hour", False),
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


def _table(section: Section) -> str:
    if not section.rows:
        return _EMPTY
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


def _busiest(data: ReportData) -> list[str]:
    """The queues that are plotted: as many as there are colours."""
    sizes: dict[str, float] = {}
    for row in data.over_time:
        sizes[row["queue"]] = sizes.get(row["queue"], 0) + row["attempts"]
    for row in data.depth:
        sizes.setdefault(row["queue"], row["ready"])
    return sorted(sizes, key=lambda queue: (-sizes[queue], queue))[:COLOURS]


def _plots(
    data: ReportData, queues: Sequence[str], rows: Sequence[Row], plots: Sequence[_Plot]
) -> str:
    """Plots of some columns of these rows, a series per queue, with one legend."""
    if not rows:
        return ""
    parts: list[str] = []
    for title, column, draw in plots:
        series: dict[str, dict[float, float]] = {queue: {} for queue in queues}
        for row in rows:
            if row["queue"] in series and row[column] is not None:
                series[row["queue"]][row["at"]] = row[column]
        if svg := draw(title, series, data.every):
            parts.append(f"<h3>{escape(title)}</h3>{svg}")
    known = {row["queue"] for row in (*data.over_time, *data.depth)}
    left = len(known) - len(queues)
    more = f"<p>The {len(queues)} busiest queues; {left:,} more are in tables.</p>" if left else ""
    return legend([f"queue {queue}" for queue in queues]) + more + "".join(parts)


def _count_bars(title: str, series: Series, every: float) -> str:
    return bars(title, series, every, brief)


def _count_lines(title: str, series: Series, every: float) -> str:
    return lines(title, series, every, brief)


def _second_lines(title: str, series: Series, every: float) -> str:
    return lines(title, series, every, seconds_text, seconds=True)


def _load_plots(data: ReportData, queues: Sequence[str]) -> str:
    per = interval_text(data.every)
    plots: tuple[_Plot, ...] = (
        (f"Attempts that ended, per {per}", "attempts", _count_bars),
        ("Wait from due to started, 95th percentile", "wait_p95", _second_lines),
        ("Run from started to ended, 95th percentile", "run_p95", _second_lines),
    )
    return _plots(data, queues, data.over_time, plots)


def _failure_plot(data: ReportData, queues: Sequence[str]) -> str:
    rows = [
        {**row, "bad": row["failed"] + row["retries"] + row["lapses"]} for row in data.over_time
    ]
    title = f"Failed jobs, retries and lapses, per {interval_text(data.every)}"
    plots = ((title, "bad", _count_bars),)
    return _plots(data, queues, [row for row in rows if row["bad"]], plots)


def _depth_plots(data: ReportData, queues: Sequence[str]) -> str:
    plots: tuple[_Plot, ...] = (
        ("Jobs ready to run, most at a time", "ready", _count_lines),
        ("How long the oldest ready job had waited", "oldest", _second_lines),
    )
    return _plots(data, queues, data.depth, plots)
