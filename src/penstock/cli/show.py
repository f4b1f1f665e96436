"""What commands print: tables and sentences for people, JSON for programs.

Results go to stdout, everything said in passing to stderr: what is piped on is only the result.
Secrets are hidden here too, because a job that still waits has its whole body in the store.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import rich.console
import rich.table
import rich.text

from penstock.redact import redact
from penstock.why import moment, span

if TYPE_CHECKING:
    from penstock.cli.examine import Finding
    from penstock.job import Job
    from penstock.rule import Rule
    from penstock.views import Count, Event

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
_PIPED_WIDTH = 200  # nobody folds a pipe: a cut-off id is worse than a long line


def console(*, stderr: bool = False) -> rich.console.Console:
    """A console on what stdout or stderr is at this moment."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return rich.console.Console(file=stream, width=width, highlight=False, soft_wrap=False)


def program() -> str:
    """What to type to call this program again, as it was called now."""
    if shutil.which("penstock"):
        return "penstock"
    called = Path(sys.argv[0])
    if called.name != "penstock":
        return f"{Path(sys.executable).name} -m penstock"
    here = Path.cwd()
    absolute = here / called
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def say(text: str, style: str = "") -> None:
    """A sentence, to stdout, in one piece however long it is."""
    console().print(rich.text.Text(text, style), soft_wrap=True)


def aside(text: str, style: str = "dim") -> None:
    """A sentence in passing, to stderr."""
    console(stderr=True).print(rich.text.Text(text, style), soft_wrap=True)


def complain(text: str) -> None:
    """What went wrong, to stderr."""
    aside(text, "red")


def put_json(value: Any) -> None:
    """One JSON document, on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def put_json_lines(values: Iterable[Any]) -> None:
    for value in values:
        put_json(value)


def table(*columns: str, right: Sequence[str] = ()) -> rich.table.Table:
    made = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def iso(at: float | None) -> str | None:
    """A time for programs: ISO, UTC."""
    if at is None:
        return None
    try:
        text = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    except (OverflowError, OSError, ValueError):
        return moment(at)
    return text.replace("+00:00", "Z")


def ago(at: float | None, now: float) -> str:
    """A time for people, seen from now."""
    if at is None:
        return ""
    if abs(now - at) < 1:
        return "now"
    return f"{span(now - at)} ago" if at <= now else f"in {span(at - now)}"


def decoded(raw: bytes | None) -> Any:
    """Stored JSON as a value; what cannot be read is shown as it is."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"unreadable": raw.decode("utf-8", "backslashreplace")}


def arguments_of(body: bytes | None) -> Any:
    """The arguments in a body, secrets hidden."""
    whole = None if body is None else decoded(redact(body))
    return whole.get("args", whole) if isinstance(whole, dict) else whole  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def one_line(raw: bytes | None, value: Any) -> str:
    """A result on one line: as it is stored, or, if it is not kept, as Python shows it."""
    return repr(value) if raw is None else raw.decode("utf-8", "backslashreplace")


def call_text(body: bytes | None) -> str:
    """The arguments on one line."""
    arguments = arguments_of(body)
    if not isinstance(arguments, dict):
        return ""
    items: list[tuple[str, Any]] = list(arguments.items())  # pyright: ignore[reportUnknownArgumentType]
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in items)


def job_json(job: Job[Any]) -> dict[str, Any]:
    """A job for programs."""
    body = decoded(redact(job.body))
    whole = cast("dict[str, Any]", body) if isinstance(body, dict) else {"args": body}
    options = {name: value for name, value in whole.items() if name not in {"args", "secret"}}
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "reason": job.reason,
        "args": whole.get("args", whole),
        "options": options,
        "result": decoded(job.result),
        "error": job.error,
        "version": job.version,
        "priority": job.priority,
        "key": job.key,
        "unique": job.unique,
        "runs_on": job.runs_on,
        "tags": job.tags,
        "attempt": job.attempt,
        "failures": job.failures,
        "lapses": job.lapses,
        "repeats": job.repeats,
        "worker": job.worker,
        "enqueued_at": iso(job.enqueued_at or None),
        "run_at": iso(job.run_at),
        "claimed_at": iso(job.claimed_at),
        "ended_at": iso(job.ended_at),
        "expires_at": iso(job.expires_at),
    }


def event_json(event: Event) -> dict[str, Any]:
    """A row of history for programs."""
    return {
        "position": event.position,
        "kind": event.kind,
        "at": iso(event.at),
        "job": event.job,
        "queue": event.queue,
        "task": event.task,
        "version": event.version,
        "priority": event.priority,
        "attempt": event.attempt,
        "state": event.state,
        "reason": event.reason,
        "enqueued_at": iso(event.enqueued_at),
        "run_at": iso(event.run_at),
        "started_at": iso(event.started_at),
        "worker": event.worker,
        "tags": event.tags,
        "error": event.error,
        "args": arguments_of(event.body),
        "result": decoded(event.result),
        "data": decoded(event.data),
    }


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule for programs."""
    return {
        "kind": rule.kind,
        "queue": rule.queue,
        "task": rule.task,
        "author": rule.author,
        "reason": rule.reason,
        "created_at": iso(rule.created_at or None),
        "until": iso(rule.until),
        "version": rule.version,
        "tag": None if rule.tag is None else "=".join(rule.tag),
        "key": rule.key,
        "running": rule.running,
        "rate": None if rule.rate is None else {"jobs": rule.rate[0], "seconds": rule.rate[1]},
        "per_key": rule.per_key,
        "policy": rule.policy,
    }


def state_text(state: str | None) -> rich.text.Text:
    return rich.text.Text(state or "", COLOURS.get(state or "", ""))


def jobs_table(jobs: Sequence[Job[Any]], now: float) -> rich.table.Table:
    """Jobs, newest first, the id never cut off."""
    made = rich.table.Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("id", no_wrap=True, min_width=36)
    made.add_column("state", no_wrap=True, min_width=9)
    made.add_column("task", overflow="fold")
    made.add_column("queue", overflow="ellipsis", no_wrap=True)
    made.add_column("enqueued", no_wrap=True)
    made.add_column("what", overflow="ellipsis", no_wrap=True)
    for job in jobs:
        what = call_text(job.body)
        if job.reason and job.state != "succeeded":
            what = f"{job.reason}; {what}"
        if job.state == "ready" and job.run_at is not None and job.run_at > now:
            what = f"due {ago(job.run_at, now)}; {what}"
        made.add_row(
            job.id,
            state_text(job.state),
            rich.text.Text(job.task),
            rich.text.Text(job.queue),
            ago(job.enqueued_at, now),
            rich.text.Text(what),
        )
    return made


_PLACES = ("ready", "scheduled", "waiting", "paused", "running", "failed")


def counts_table(counts: Sequence[Count], *, by_task: bool) -> rich.table.Table:
    """Where jobs stand, a row per queue or per task of a queue."""
    places = _PLACES
    if any(count.limited for count in counts):
        places = (*places, "limited")
    heads = ("queue", "task", *places) if by_task else ("queue", *places)
    made = table(*heads, right=places)
    for count in counts if by_task else by_queue(counts):
        numbers = [getattr(count, place) for place in places]
        names = (count.queue, count.task) if by_task else (count.queue,)
        made.add_row(
            *(rich.text.Text(name) for name in names),
            *(
                rich.text.Text(f"{number:,}", COLOURS[place] if number else "dim")
                for place, number in zip(places, numbers, strict=True)
            ),
        )
    return made


def by_queue(counts: Sequence[Count]) -> list[Count]:
    """Counts of the tasks of a queue, added up; their task is empty."""
    from penstock.views import Count

    sums: dict[str, Count] = {}
    for count in counts:
        sums.setdefault(count.queue, Count(count.queue, ""))
        sums[count.queue] = Count(
            count.queue,
            "",
            *(
                getattr(sums[count.queue], place) + getattr(count, place)
                for place in (*_PLACES, "limited")
            ),
        )
    return list(sums.values())


def event_line(event: Event) -> rich.text.Text:
    """One row of history on one line."""
    at = datetime.fromtimestamp(event.at, UTC).strftime("%H:%M:%S.%f")[:-3]
    line = rich.text.Text(f"{event.position:>7}  {at}  ", "dim")
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
    if event.reason:
        line.append(f"  {event.reason}")
    if event.error:
        line.append(f": {event.error.strip().splitlines()[-1]}", "red")
    data = decoded(event.data)
    if isinstance(data, dict) and data:
        words = [f"{name}={value}" for name, value in data.items() if value not in (None, "")]  # pyright: ignore[reportUnknownVariableType]
        line.append("  " + " ".join(words), "dim")
    return line


def put_finding(finding: Finding) -> None:
    """One line of the doctor's, and its remedy below."""
    mark = {"green": "ok", "yellow": "!", "red": "RED"}[finding.colour]
    line = rich.text.Text(f"{mark:>4}  ", finding.colour)
    line.append(f"{finding.name:<14}", "bold")
    line.append(finding.says)
    console().print(line, soft_wrap=True)
    if finding.remedy:
        console().print(rich.text.Text(f"{'':20}-> {finding.remedy}", "dim"), soft_wrap=True)


class Ticker:
    """One line on a terminal's stderr, written over and over; nothing when piped or quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._on = sys.stderr.isatty() and not quiet
        self._said_at = 0.0

    def say(self, text: str) -> None:
        now = time.monotonic()
        if self._on and now - self._said_at > 0.1:
            self._said_at = now
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()

    def done(self) -> None:
        if self._on and self._said_at:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
