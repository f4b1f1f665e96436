"""The layout of a flow's drawing: nodes in columns by depth, lines from each node to its needs.

Pure: nodes in, coordinates out; the template makes SVG of them. A map is one box, however many jobs
it has. A drawing is bounded in columns and in boxes per column; nodes that failed or have most jobs
are drawn first, the others are counted and listed on a page of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

from penstock.flows.flow import NodeRow, levels_of

WIDTH, HEIGHT = 200, 80  # of a box
ACROSS, DOWN = 44, 18  # between boxes
INNER = WIDTH - 24  # the width of what is in a box
EDGE = 14  # around all of them
COLUMNS = 8
ROWS = 12
MOST_LINES = 400
MOST_CELLS = 21  # of a name in a box; a Chinese character takes two
MOST_COUNTED = 16  # characters of a count, beside the state


class Box(NamedTuple):
    """A node at its coordinates; `ended` and `bad` are bar lengths within `INNER`."""

    node: NodeRow
    label: str
    x: int
    y: int
    ended: int
    bad: int


class HiddenNodes(NamedTuple):
    """The number of nodes of a column that are not drawn."""

    level: int
    nodes: int
    x: int
    y: int


class DrawnLine(NamedTuple):
    """From a need to the node that needs it."""

    x1: int
    y1: int
    x2: int
    y2: int
    bend: int  # the x at which it curves
    bad: bool


class Drawing(NamedTuple):
    """All that is drawn; `next` is the first column that is not, if there are more."""

    width: int
    height: int
    boxes: list[Box]
    rests: list[HiddenNodes]
    lines: list[DrawnLine]
    first: int
    next: int | None
    columns: int
    box: tuple[int, int] = (WIDTH, HEIGHT)
    inner: int = INNER


def draw(nodes: Sequence[NodeRow], first: int = 0) -> Drawing:
    """Lay out the columns from `first` on."""
    levels = levels_of(nodes)
    # A cycle means a damaged store; its nodes have no level, and are drawn in the first column.
    columns: dict[int, list[NodeRow]] = {}
    for node in nodes:
        columns.setdefault(levels.get(node.id, 0), []).append(node)
    deepest = max(columns, default=-1) + 1
    shown = range(first, min(first + COLUMNS, deepest))
    boxes: list[Box] = []
    rests: list[HiddenNodes] = []
    rows: dict[str, float] = {}
    for index, level in enumerate(shown):
        column = columns.get(level, [])
        kept = _most_important(column)
        kept.sort(key=lambda node: _middle_of_needs(node, rows))
        x = EDGE + index * (WIDTH + ACROSS)
        for row, node in enumerate(kept):
            rows[node.id] = row
            boxes.append(_box(node, x, EDGE + row * (HEIGHT + DOWN)))
        if len(column) > len(kept):
            y = EDGE + len(kept) * (HEIGHT + DOWN)
            rests.append(HiddenNodes(level, len(column) - len(kept), x, y))
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
    """The node that took longest; None for fewer than two."""
    if len(times) < 2:
        return None
    return max(times, key=lambda node: times[node])


def short(name: str) -> str:
    """A name that fits a box; the end of a task's name says most."""
    if _cells(name) <= MOST_CELLS:
        return name
    while _cells(name) >= MOST_CELLS:
        name = name[1:]
    return f"…{name}"


def _cells(name: str) -> int:
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in name)


def count_text(node: NodeRow, state: str) -> str:
    """The count beside the state: of a failed map the jobs that failed, else those that ended."""
    if node.jobs <= 1:
        return ""
    if state in {"failed", "cancelled"}:
        return f"{node.bad:,} of {node.jobs:,}"
    ended = f"{node.jobs - node.jobs_left:,} of {node.jobs:,}"
    failed = f"{ended}, {node.bad:,} bad"
    return failed if node.bad and len(failed) <= MOST_COUNTED else ended


def _most_important(column: Sequence[NodeRow]) -> list[NodeRow]:
    if len(column) <= ROWS:
        return list(column)
    ranked = sorted(column, key=lambda node: (-node.bad, -node.jobs_left, -node.jobs))
    kept = {node.id for node in ranked[:ROWS]}
    return [node for node in column if node.id in kept]


def _middle_of_needs(node: NodeRow, rows: Mapping[str, float]) -> float:
    """The mean row of its needs: sorted by it, few lines cross."""
    found = [rows[need] for need in node.needs if need in rows]
    return sum(found) / len(found) if found else 0.0


def _box(node: NodeRow, x: int, y: int) -> Box:
    ended = INNER * (node.jobs - node.jobs_left) // max(node.jobs, 1)
    bad = min(
        ended, -(-INNER * node.bad // max(node.jobs, 1))
    )  # rounded up: one of a million is visible
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
