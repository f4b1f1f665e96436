"""A flow as a drawing: nodes in columns by what lies before them, lines from each to its needs.

Pure: nodes in, places out; the template makes SVG of them. A map is one box, however many jobs it
has. A drawing is bounded: so many columns from where it begins, so many boxes in a column, those
first that went wrong or have most jobs. What is left out is counted, and drawn when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.flows.flow import NodeRow, levels_of

WIDTH, HEIGHT = 200, 80  # of a box
ACROSS, DOWN = 44, 18  # between boxes
INNER = WIDTH - 24  # the width of what is in a box
EDGE = 14  # around all of them
COLUMNS = 8
ROWS = 12
MOST_LINES = 400
MOST_CHARACTERS = 23  # of a name in a box


class Box(NamedTuple):
    """A node in its place; bars are parts of `INNER`."""

    node: NodeRow
    label: str
    x: int
    y: int
    ended: int
    bad: int


class Rest(NamedTuple):
    """So many nodes of a column that are not drawn."""

    level: int
    nodes: int
    x: int
    y: int


class DrawnLine(NamedTuple):
    """From a need to who needs it."""

    x1: int
    y1: int
    x2: int
    y2: int
    bend: int  # the x in between, at which it turns
    bad: bool


class Drawing(NamedTuple):
    """All that is drawn; `next`: the first column that is not, if there are more."""

    width: int
    height: int
    boxes: list[Box]
    rests: list[Rest]
    lines: list[DrawnLine]
    first: int
    next: int | None
    columns: int
    box: tuple[int, int] = (WIDTH, HEIGHT)
    inner: int = INNER


def draw(nodes: Sequence[NodeRow], first: int = 0) -> Drawing:
    """Lay out the columns from `first` on."""
    levels = levels_of(nodes)
    # A store that holds a circle is damaged, and shown all the same.
    columns: dict[int, list[NodeRow]] = {}
    for node in nodes:
        columns.setdefault(levels.get(node.id, 0), []).append(node)
    deepest = max(columns, default=-1) + 1
    shown = range(first, min(first + COLUMNS, deepest))
    boxes: list[Box] = []
    rests: list[Rest] = []
    rows: dict[str, float] = {}
    for place, level in enumerate(shown):
        column = columns.get(level, [])
        kept = _kept(column)
        kept.sort(key=lambda node: _beside(node, rows))
        x = EDGE + place * (WIDTH + ACROSS)
        for row, node in enumerate(kept):
            rows[node.id] = row
            boxes.append(_box(node, x, EDGE + row * (HEIGHT + DOWN)))
        if len(column) > len(kept):
            y = EDGE + len(kept) * (HEIGHT + DOWN)
            rests.append(Rest(level, len(column) - len(kept), x, y))
    tallest = max([1 + box.y + HEIGHT for box in boxes] + [rest.y + 28 for rest in rests] + [0])
    return Drawing(
        width=2 * EDGE + len(shown) * (WIDTH + ACROSS) - ACROSS if boxes else 0,
        height=tallest + EDGE,
        boxes=boxes,
        rests=rests,
        lines=_lines(boxes),
        first=first,
        next=shown.stop if shown.stop < deepest else None,
        columns=deepest,
    )


def slowest(times: Mapping[str, float]) -> str | None:
    """The node that took longest; None where there is none to compare it with."""
    if len(times) < 2:
        return None
    return max(times, key=lambda node: times[node])


def short(name: str) -> str:
    """A name that fits a box: of a task its end says most."""
    return name if len(name) <= MOST_CHARACTERS else f"…{name[1 - MOST_CHARACTERS :]}"


def _kept(column: Sequence[NodeRow]) -> list[NodeRow]:
    if len(column) <= ROWS:
        return list(column)
    worth = sorted(column, key=lambda node: (-node.bad, -node.jobs_left, -node.jobs))
    wanted = {node.id for node in worth[:ROWS]}
    return [node for node in column if node.id in wanted]


def _beside(node: NodeRow, rows: Mapping[str, float]) -> float:
    """In the middle of what it needs, so that lines cross little."""
    found = [rows[need] for need in node.needs if need in rows]
    return sum(found) / len(found) if found else 0.0


def _box(node: NodeRow, x: int, y: int) -> Box:
    ended = INNER * (node.jobs - node.jobs_left) // max(node.jobs, 1)
    bad = min(ended, -(-INNER * node.bad // max(node.jobs, 1)))  # one of a million is seen, too
    return Box(node, short(node.task), x, y, max(0, ended - bad), bad)


def _lines(boxes: Sequence[Box]) -> list[DrawnLine]:
    at = {box.node.id: box for box in boxes}
    lines: list[DrawnLine] = []
    for box in boxes:
        for need in box.node.needs:
            start = at.get(need)
            if start is None or len(lines) == MOST_LINES:
                continue
            x1, x2 = start.x + WIDTH, box.x
            middle = HEIGHT // 2
            lines.append(
                DrawnLine(
                    x1, start.y + middle, x2, box.y + middle, x2 - ACROSS // 2, start.node.bad > 0
                )
            )
    return lines
