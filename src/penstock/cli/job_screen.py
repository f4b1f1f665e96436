"""The lines that `penstock show` prints; with a width they are cut, and so is what is many.

What people look for first is on top: the state, why, and the command that helps. The error is last
but for the log, where a terminal leaves the eye.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import rich.cells
import rich.text

from penstock.app.log_lines import legible
from penstock.cli import output
from penstock.operate.sentences import jobs_text
from penstock.operate.time_text import duration_text, relative_time, time_text
from penstock.operate.to_json import decoded
from penstock.run.error_text import headline, traceback_in
from penstock.run.traceback_frames import own_frames

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.operate.job_view import Attempt, JobView

MOST_ATTEMPTS = 4  # these are shown when lines are cut; the last ones
MOST_LINES = 8
MOST_EVENTS = 4
MOST_CHILDREN = 4
MOST_FRAMES = 3
_LABEL = 11


def job_screen(view: JobView, now: float, width: int | None) -> list[rich.text.Text]:
    """The lines; with no width everything, else cut to it."""
    lines = list(_lines(view, now, width))
    if width is not None:
        for line in lines:
            line.truncate(width, overflow="ellipsis")
    return lines


def _lines(view: JobView, now: float, width: int | None) -> Iterator[rich.text.Text]:
    job = view.job
    task = "a job that is no longer kept" if job is None else job.task
    title = rich.text.Text(_clean(task), "bold")
    if job is not None:
        title.append("  ").append_text(output.state_text(job.state))
    yield title
    yield from map(rich.text.Text, _wrapped(view.why.sentence, width))
    yield rich.text.Text()
    for label, text in _facts(view, now):
        yield _labelled(label, text)
    for label, raw in (
        ("arguments", view.arguments),
        ("result", None if job is None else job.result),
    ):
        if raw is not None:
            yield from _value(label, raw, width)
    if view.progress is not None:
        done = f"{view.progress.fraction:.0%} {view.progress.note}".rstrip()
        yield _labelled("progress", f"{done}, {relative_time(view.progress.at, now)}")
    if view.snapshots:
        yield from _value("snapshot", view.snapshots[-1].value, width)
    for step in view.steps:
        yield from _value(f"step {step.name}", step.value, width)
    yield from _family(view, width)
    yield from _attempts(view.attempts, now, width)
    yield from _events(view, now, width)
    yield from _log(view, width)


def _facts(view: JobView, now: float) -> Iterator[tuple[str, str]]:
    yield "id", view.id
    job = view.job
    if job is None:
        return
    version = f", version {job.version}" if job.version != 1 else ""
    priority = f", priority {job.priority}" if job.priority else ""
    app = f", app {job.app}" if job.app else ""
    yield "queue", f"{job.queue}{app}{version}{priority}"
    if job.key:
        yield "key", job.key
    if job.unique is not None:
        yield "unique", f"{job.unique.key}, until {job.unique.until}"
    if tags := {name: value for name, value in job.tags.items() if not name.startswith("penstock")}:
        yield "tags", ", ".join(f"{name}={value}" for name, value in tags.items())
    if job.runs_on:
        yield "runs on", ", ".join(job.runs_on)
    yield "enqueued", _moment(job.enqueued_at, now)
    for label, at in (("due", _due(job)), ("expires", job.expires_at), ("ended", job.ended_at)):
        if at is not None:
            yield label, _moment(at, now)
    for name, value in [*view.headers.items(), *view.options.items()]:
        yield name, value if isinstance(value, str) else _compact(value)


def _due(job: Job[Any]) -> float | None:
    """When it is due, if that says more than when it was enqueued."""
    if job.run_at is None or job.ended_at is not None or job.run_at <= job.enqueued_at:
        return None
    return job.run_at


def _family(view: JobView, width: int | None) -> Iterator[rich.text.Text]:
    """The flow it is in, the job that it comes from, and the jobs that come from it."""
    if view.place is not None:
        flow, node = view.place.flow, view.place.node
        which = f"one of {jobs_text(node.jobs)} of this step" if node.jobs > 1 else "a step"
        after = ", ".join(dict.fromkeys(need.task for need in view.place.needs))
        more = len(node.needs) - len(view.place.needs)
        after += f" and {more} more" if more > 0 else ""
        name = f"{flow.name} " if flow.name else ""
        yield _labelled("flow", f"{name}{flow.id}, {which}{after and f', after {after}'}")
    if view.parent is not None:
        yield _labelled("spawned by", view.parent)
    if view.copy_of is not None:
        yield _labelled("copy of", view.copy_of)
    if view.spawned is not None:
        flow = f", flow {view.spawned.flow}" if view.spawned.flow else ""
        yield _labelled("spawned", f"{jobs_text(view.spawned.jobs)}{flow}")
    elif view.children:
        yield _labelled("spawned", jobs_text(len(view.children)))
    shown = view.children if width is None else view.children[:MOST_CHILDREN]
    for child in shown:
        line = rich.text.Text(" " * _LABEL)
        line.append(f"{child.id}  ").append_text(output.state_text(child.state))
        yield line.append(f"  {_clean(child.task or 'not kept any more')}")
    if len(view.children) > len(shown):
        yield _more(f"{len(view.children) - len(shown)} more: --full")


def _attempts(
    attempts: Sequence[Attempt], now: float, width: int | None
) -> Iterator[rich.text.Text]:
    if not attempts:
        return
    shown = attempts if width is None else attempts[-MOST_ATTEMPTS:]
    earlier = len(attempts) - len(shown)
    yield from _heading("attempts", f"{earlier} before these: --full" if earlier else "")
    for attempt in shown:
        yield _attempt(attempt, now)
        if not attempt.error:
            continue
        last = attempt is attempts[-1]
        yield rich.text.Text(f"      {_clean(headline(attempt.error))}", "red")
        if width is None:
            for line in traceback_in(attempt.error).splitlines():
                yield rich.text.Text(f"      {_clean(line)}", "dim")
        elif last:
            yield from _frames(attempt.error)


def _attempt(attempt: Attempt, now: float) -> rich.text.Text:
    line = rich.text.Text(f"{attempt.number or '':>4}  ")
    # One that leads back to ready: the job runs again.
    word = "again" if attempt.state == "ready" else attempt.state
    line.append(f"{word:<9}", output.COLOURS.get(attempt.state, ""))
    words = [attempt.reason] if attempt.reason else []
    if attempt.started_at is not None:
        words.append(f"began {relative_time(attempt.started_at, now)}")
    words += [] if attempt.waited is None else [f"waited {_span(attempt.waited)}"]
    words += [] if attempt.took is None else [f"took {_span(attempt.took)}"]
    words += [f"on {attempt.worker}"] if attempt.worker else []
    return line.append(f"  {_clean(', '.join(words))}")


def _frames(error: str) -> Iterator[rich.text.Text]:
    """Where it was raised, in the user's own code."""
    frames = own_frames(traceback_in(error))
    for frame in frames[:MOST_FRAMES]:
        line = rich.text.Text(f"      {_clean(frame.place)} in {_clean(frame.name)}")
        yield line.append(f"  {_clean(frame.source)}" if frame.source else "", "dim")
    if frames or len(traceback_in(error).splitlines()) > 1:
        yield _more("the whole traceback: --full")


def _events(view: JobView, now: float, width: int | None) -> Iterator[rich.text.Text]:
    shown = view.events if width is None else view.events[-MOST_EVENTS:]
    if not shown:
        return
    earlier = len(view.events) - len(shown)
    yield from _heading("events", f"{earlier} before these: --full" if earlier else "")
    for event in shown:
        line = rich.text.Text(f"      {relative_time(event.at, now)}  ", "dim")
        line.append(_clean(event.did), "bold")
        line.append(f" by {_clean(event.author)}" if event.author else "")
        line.append(f": {_clean(event.reason)}" if event.reason else "")
        for name, value in event.more.items():
            text = value if isinstance(value, str) else _compact(value)
            line.append(f"  {_clean(name)}={_clean(text)}", "dim")
        yield line


def _log(view: JobView, width: int | None) -> Iterator[rich.text.Text]:
    shown = view.lines if width is None else view.lines[-MOST_LINES:]
    if not shown:
        return
    earlier = len(view.lines) - len(shown)
    yield from _heading("log", f"{earlier:,} lines before these: --full" if earlier else "")
    for entry in shown:
        line = rich.text.Text(f"      {time_text(entry.at)[11:19]} ", "dim")
        line.append(f"{entry.level:<8}", "yellow" if entry.level == "warning" else "")
        text = entry.text if width is None else entry.text.partition("\n")[0]
        yield line.append(_clean(text))


def _value(label: str, raw: bytes, width: int | None) -> Iterator[rich.text.Text]:
    """JSON on a line; arguments one per line where they do not fit."""
    value = decoded(raw)
    text = _compact(value) if not isinstance(value, dict) else ", ".join(_items(value))
    room = None if width is None else width - _LABEL
    fits = room is None or rich.cells.cell_len(text) <= room
    if not isinstance(value, dict) or fits:
        yield _labelled(label, text)
        return
    for number, item in enumerate(_items(value)):
        yield _labelled(label if number == 0 else "", item)


def _items(value: Any) -> list[str]:
    return [f"{name}={_compact(each)}" for name, each in value.items()]


def _compact(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _wrapped(sentence: str, width: int | None) -> list[str]:
    """The sentence; a command in it stays on one line, to be copied."""
    text = _clean(sentence)
    if width is None:
        return [text]
    parts = text.split("`")
    parts[1::2] = [part.replace(" ", "\0") for part in parts[1::2]]
    lines = textwrap.wrap("`".join(parts), width, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\0", " ") for line in lines]


def _labelled(label: str, text: str) -> rich.text.Text:
    line = rich.text.Text(f"{_clean(label):<{_LABEL - 1}} ", "dim")
    return line.append(_clean(text), "")


def _heading(word: str, more: str) -> Iterator[rich.text.Text]:
    yield rich.text.Text()
    yield rich.text.Text(word, "bold").append(f"  {more}" if more else "", "dim")


def _more(text: str) -> rich.text.Text:
    return rich.text.Text(f"      {text}", "dim")


def _moment(at: float, now: float) -> str:
    return f"{time_text(at)} ({relative_time(at, now)})"


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)


def _clean(text: str) -> str:
    return legible(text.replace("\t", "  "))
