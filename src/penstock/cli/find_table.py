"""The table that `penstock find` prints: one line per job.

Widths are in terminal cells: a Chinese character has two, a control character is shown as a symbol
of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rich.cells
import rich.text

from penstock.app.log_lines import legible
from penstock.cli import output
from penstock.operate.time_text import relative_time
from penstock.operate.to_json import call_text
from penstock.run.error_text import headline

if TYPE_CHECKING:
    from penstock.job import Job

_HEADS = ("id", "state", "task", "queue", "enqueued", "what")
_NARROW_HEADS = ("id", "state", "task", "what")
_WIDE = 110  # below it there is no room for queue and time
_GAP = 2
_STEPS = (("what", 24), ("queue", 8), ("task", 16), ("what", 12))  # shrink in this order
_SPACES = {ord(sign): " " for sign in "\t\n"}


def job_table(jobs: Sequence[Job[Any]], now: float, width: int | None) -> list[rich.text.Text]:
    """A heading and a line per job, cut to this width; None: uncut."""
    heads = _HEADS if width is None or width >= _WIDE else _NARROW_HEADS
    rows = [_cells(job, now) for job in jobs]
    widths = {
        head: max(rich.cells.cell_len(text) for text in (head, *(row[head] for row in rows)))
        for head in heads
    }
    if width is not None:
        _fit(widths, width - _GAP * (len(heads) - 1))
    lines = [rich.text.Text((" " * _GAP).join(head.ljust(widths[head]) for head in heads), "bold")]
    for row in rows:
        line = rich.text.Text()
        for head in heads:
            style = output.COLOURS.get(row[head], "") if head == "state" else ""
            line.append(_cut(row[head], widths[head], head), style)
            if head != "what":
                line.append(" " * _GAP)
        lines.append(line)
    for line in lines:
        line.rstrip()
    return lines


def _cells(job: Job[Any], now: float) -> dict[str, str]:
    what = call_text(job.body)
    if job.reason and job.state != "succeeded":
        error = headline(job.error)
        if not error or job.reason not in {"error", "timeout"}:  # the headline shows those two
            error = f"{job.reason}{error and ': '}{error}"
        what = f"{error}; {what}"
    if job.state == "ready" and job.run_at is not None and job.run_at > now:
        what = f"due {relative_time(job.run_at, now)}; {what}"
    cells = (job.id, str(job.state), job.task, job.queue, relative_time(job.enqueued_at, now), what)
    return {
        head: legible(text).translate(_SPACES) for head, text in zip(_HEADS, cells, strict=True)
    }


def _fit(widths: dict[str, int], room: int) -> None:
    """Narrow the columns until they fit; ids and states stay whole."""
    for head, least in _STEPS:
        if head in widths and (over := sum(widths.values()) - room) > 0:
            widths[head] = max(min(widths[head], least), widths[head] - over)


def _cut(text: str, width: int, head: str) -> str:
    """The text cut or padded to this many cells; a task's name keeps its end."""
    if rich.cells.cell_len(text) <= width:
        return rich.cells.set_cell_size(text, width)
    if head == "task":
        while rich.cells.cell_len(text) > width - 1:
            text = text[1:]
        return rich.cells.set_cell_size(f"…{text}", width)
    return f"{rich.cells.set_cell_size(text, width - 1)}…"
