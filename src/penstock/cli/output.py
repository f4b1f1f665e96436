"""What commands print: tables and sentences for people, JSON for programs.

Results go to stdout, notes and errors to stderr, so that a pipe gets only the result. JSON is made
in `operate.to_json`.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import rich.console
import rich.segment
import rich.table
import rich.text

from penstock.app.log_lines import legible, legible_json, put_line
from penstock.broker.views import by_queue
from penstock.operate.counts import COLUMNS, size_text
from penstock.operate.to_json import event_data
from penstock.run.error_text import headline

if TYPE_CHECKING:
    from penstock.broker.views import Count, Event
    from penstock.operate.doctor import Finding

COLOURS = {
    "ready": "cyan",
    "waiting": "cyan",
    "scheduled": "blue",
    "running": "yellow",
    "paused": "magenta",
    "limited": "magenta",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
}
_NOTED = frozenset({"event", "progress"})  # their reason is that of the attempt before
_PIPED_WIDTH = 200  # in a pipe a cut-off id is worse than a long line


class _Console(rich.console.Console):
    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterator[rich.segment.Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else legible(segment.text)
            yield segment._replace(text=text)


def console(*, stderr: bool = False) -> rich.console.Console:
    """A console on the current stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return _Console(file=stream, width=width, highlight=False, soft_wrap=False)


def program() -> str:
    """How to call this program again: as it was called now."""
    if shutil.which("penstock"):
        return "penstock"
    called = Path(sys.argv[0])
    if called.name != "penstock":
        return f"{Path(sys.executable).name} -m penstock"
    here = Path.cwd()
    absolute = here / called
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def print_text(text: str, style: str = "") -> None:
    """A line to stdout, never wrapped."""
    console().print(rich.text.Text(text, style), soft_wrap=True)


def print_note(text: str, style: str = "dim") -> None:
    """A note to stderr; where the log is JSON, a log line."""
    if put_line(text, logging.ERROR if style == "red" else logging.INFO):
        return
    console(stderr=True).print(rich.text.Text(text, style), soft_wrap=True)


def note_sealed(bodies: Iterable[bytes | None]) -> None:
    """Say so if arguments that are shown are encrypted: there is no key for them here."""
    from penstock.app.key_file import SEALED_HERE
    from penstock.enqueue.secrets import is_sealed

    if any(body is not None and is_sealed(body) for body in bodies):
        print_note(SEALED_HERE, "yellow")


def print_error(text: str) -> None:
    """An error to stderr."""
    print_note(text, "red")


def print_json(value: Any) -> None:
    """One JSON document, on one line."""
    sys.stdout.write(legible_json(msgspec.json.encode(value)) + "\n")
    sys.stdout.flush()


def print_json_lines(values: Iterable[Any]) -> None:
    for value in values:
        print_json(value)


def table(*columns: str, right: Sequence[str] = ()) -> rich.table.Table:
    made = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def ids_table(*columns: str) -> rich.table.Table:
    """A table of jobs; ids and states are never cut, the other columns are folded."""
    made = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("id", no_wrap=True, min_width=36)
    made.add_column("state", no_wrap=True, min_width=9)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def one_line(raw: bytes | None, value: Any) -> str:
    """A result on one line: as stored, or the repr of the value if it is not kept."""
    return repr(value) if raw is None else raw.decode("utf-8", "backslashreplace")


def state_text(state: str | None) -> rich.text.Text:
    return rich.text.Text(state or "", COLOURS.get(state or "", ""))


def counts_table(
    counts: Sequence[Count], *, by_task: bool, sizes: Mapping[str, int] | None = None
) -> rich.table.Table:
    """Counts of jobs, a row per queue or per task of a queue; `sizes`: the memory of queues."""
    limited = any(count.limited for count in counts)
    places = tuple(place for place in COLUMNS if place != "limited" or limited)
    named = by_task and any(count.app for count in counts)
    names = ("app",) * named + ("queue",) + ("task",) * by_task
    memory = ("memory",) * bool(sizes)
    made = table(*names, *places, *memory, right=(*places, *memory))
    for count in counts if by_task else by_queue(counts):
        numbers = [getattr(count, place) for place in places]
        made.add_row(
            *(rich.text.Text(getattr(count, name)) for name in names),
            *(
                rich.text.Text(f"{number:,}", COLOURS[place] if number else "dim")
                for place, number in zip(places, numbers, strict=True)
            ),
            *(rich.text.Text(size_text((sizes or {}).get(count.queue, 0))) for _ in memory),
        )
    return made


def event_line(event: Event) -> rich.text.Text:
    """One row of history on one line."""
    at = datetime.fromtimestamp(event.at, UTC).strftime("%H:%M:%S.%f")[:-3]
    line = rich.text.Text(f"{event.position}  {at}  ", "dim")
    if event.kind == "attempt":
        line.append(f"{event.state or '':<9}", COLOURS.get(event.state or "", ""))
    else:
        line.append(f"{event.kind:<9}", "bold")
    if event.job:
        line.append(f"  {event.job}")
    if event.task:
        line.append(f"  {event.task}")
    if event.attempt and event.kind == "attempt":
        line.append(f"  attempt {event.attempt}")
        if event.started_at is not None:
            line.append(f", {1000 * max(event.at - event.started_at, 0):.1f} ms")
    if event.reason and event.kind not in _NOTED:
        line.append(f"  {event.reason}")
    if event.error:
        line.append(f": {headline(event.error)}", "red")
    if data := event_data(event):
        words = [f"{name}={value}" for name, value in data.items() if value not in (None, "")]
        line.append("  " + " ".join(words), "dim")
    return line


def print_finding(finding: Finding) -> None:
    """One finding of the doctor, with its remedy below."""
    mark = {"green": "ok", "yellow": "!", "red": "RED"}[finding.colour]
    line = rich.text.Text(f"{mark:>4}  ", finding.colour)
    line.append(f"{finding.name:<13} ", "bold")
    line.append(finding.says)
    console().print(line, soft_wrap=True)
    if finding.remedy:
        console().print(rich.text.Text(f"{'':20}-> {finding.remedy}", "dim"), soft_wrap=True)


class ProgressLine:
    """One line on a terminal's stderr that is overwritten; nothing when piped or quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._on = sys.stderr.isatty() and not quiet
        self._said_at = 0.0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._on and now - self._said_at > 0.1:
            self._said_at = now
            sys.stderr.write(f"\r\x1b[2K{legible(text)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._on and self._said_at:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
