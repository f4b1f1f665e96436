"""Plots over time as inline SVG: stacked bars, and lines.

Written by hand: a plotting library would be ten times this code, and would not follow the reader's
light or dark mode. Colours are classes (`c0` to `c7`) of page.css. Names of series are in the
legend above a plot, never inside it, so nothing can overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from penstock.spark.pipelines.report.formatting import moment_text, seconds_text, ticks

WIDTH, HEIGHT = 960, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 10, 26
_TICK_WIDTH = 110  # of a date, with space around it
_WIDEST = 64  # of a bar
COLOURS = 8
_STEPS = (60, 300, 900, 1800, 3600, 10800, 21600, 43200, *(86400 * n for n in (1, 2, 3, 7, 28)))

Series = Mapping[str, Mapping[float, float]]  # name -> time -> value


class Axes(NamedTuple):
    """Coordinates: time from left to right, values from bottom to top."""

    first: float
    last: float
    most: float

    def x(self, at: float) -> float:
        width = WIDTH - _LEFT - _RIGHT
        return _LEFT + width * (at - self.first) / max(self.last - self.first, 1e-9)

    def y(self, value: float) -> float:
        height = HEIGHT - _TOP - _BOTTOM
        return HEIGHT - _BOTTOM - height * value / self.most


def bars(title: str, series: Series, every: float, text: Callable[[float], str]) -> str:
    """Stacked bars: one per interval of `every` seconds, with a part for each series."""
    moments = sorted({at for values in series.values() for at in values})
    if not moments:
        return ""
    sums = [sum(values.get(at, 0) for values in series.values()) for at in moments]
    marks = ticks(max(sums))
    axes = Axes(moments[0], moments[-1] + every, marks[-1])
    wide = max(axes.x(every) - axes.x(0) - (1 if len(moments) < 120 else 0), 0.8)
    wide = min(wide, _WIDEST)
    drawn: list[str] = []
    for at in moments:
        under = 0.0
        for number, (name, values) in enumerate(series.items()):
            value = values.get(at, 0)
            if value:
                top, bottom = axes.y(under + value), axes.y(under)
                tooltip = escape(f"{name}: {text(value)}, {moment_text(at)}")
                drawn.append(
                    f'<rect class="c{number % COLOURS}" x="{axes.x(at):.1f}" y="{top:.1f}"'
                    f' width="{wide:.1f}" height="{bottom - top:.1f}">'
                    f"<title>{tooltip}</title></rect>"
                )
                under += value
    return _svg(title, axes, marks, text, drawn)


def lines(
    title: str,
    series: Series,
    every: float,
    text: Callable[[float], str],
    *,
    seconds: bool = False,
) -> str:
    """A line per series, broken where there is no value."""
    moments = sorted({at for values in series.values() for at in values})
    if not moments:
        return ""
    most = max(value for values in series.values() for value in values.values())
    marks = ticks(most, seconds=seconds)
    # A point is drawn at the middle of its interval; a single one at its start, as a single bar.
    middle = every / 2 if len(moments) > 1 else 0.0
    axes = Axes(moments[0], moments[-1] + every, marks[-1])
    drawn: list[str] = []
    for number, (name, values) in enumerate(series.items()):
        colour = f"c{number % COLOURS}"
        for run in _runs(values, every):
            points = [(axes.x(at + middle), axes.y(values[at])) for at in run]
            if len(points) > 1:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                drawn.append(f'<polyline class="{colour}" points="{path}"/>')
            for at, (x, y) in zip(run, points, strict=True):
                tooltip = escape(f"{name}: {text(values[at])}, {moment_text(at)}")
                shown = "" if len(points) > 1 else f" {colour}"
                drawn.append(
                    f'<circle class="point{shown}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                    f"<title>{tooltip}</title></circle>"
                )

    # The same unit along the whole axis: 1 h and 2 h, not 60 min and 2 h.
    def mark_text(mark: float) -> str:
        return seconds_text(mark, marks[-1]) if seconds else text(mark)

    return _svg(title, axes, marks, mark_text, drawn)


def legend(names: Sequence[str]) -> str:
    """The names of the series, each with its colour."""
    items = "".join(
        f'<li><span class="key c{number % COLOURS}"></span>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _runs(values: Mapping[float, float], every: float) -> list[list[float]]:
    """The times in runs without a gap."""
    runs: list[list[float]] = []
    for at in sorted(values):
        if runs and at - runs[-1][-1] <= every * 1.01:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _svg(
    title: str,
    axes: Axes,
    marks: Sequence[float],
    text: Callable[[float], str],
    drawn: Sequence[str],
) -> str:
    grid = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{axes.y(mark):.1f}"'
        f' y2="{axes.y(mark):.1f}"/><text class="value" x="{_LEFT - 8}"'
        f' y="{axes.y(mark) + 4:.1f}">{escape(text(mark))}</text>'
        for mark in marks
    ]
    times = [
        f'<line class="tick" x1="{axes.x(at):.1f}" x2="{axes.x(at):.1f}" y1="{HEIGHT - _BOTTOM}"'
        f' y2="{HEIGHT - _BOTTOM + 4}"/><text class="time" x="{axes.x(at):.1f}"'
        f' y="{HEIGHT - 7}">{shown}</text>'
        for at, shown in _time_marks(axes)
    ]
    name = escape(title)
    return (
        '<div class="plot">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}"><title>{name}</title>'
        f"{''.join(grid)}{''.join(times)}{''.join(drawn)}</svg></div>"
    )


def _time_marks(axes: Axes) -> list[tuple[float, str]]:
    """Round times, far enough apart that their texts do not touch."""
    fit = max((WIDTH - _LEFT - _RIGHT) // _TICK_WIDTH, 1)
    span = axes.last - axes.first
    step = next((size for size in _STEPS if span / size <= fit), _STEPS[-1])
    at = axes.first - axes.first % step
    marks: list[tuple[float, str]] = []
    day = ""
    while at <= axes.last:
        # A text is centred under its mark: it needs half its width on either side.
        if axes.x(at) >= _LEFT and axes.x(at) <= WIDTH - _TICK_WIDTH / 2:
            moment = datetime.fromtimestamp(at, UTC)
            date = f"{moment:%b %d}"
            shown = date if step >= 86400 else f"{moment:%H:%M}"
            if step < 86400 and date != day:
                shown = f"{date}, {shown}"
            marks.append((at, shown))
            day = date
        at += step
    return marks
