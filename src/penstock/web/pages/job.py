"""One job: why it is where it is, its attempts, what it carries, and what it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.as_json import decoded
from penstock.broker import Note
from penstock.errors import Refused
from penstock.flow import member_of
from penstock.job import ENDED, Job, State
from penstock.notes import Line, Progress
from penstock.views import Event
from penstock.web.asked import Asked, Conflict, NotFound

MOST_EVENTS = 200
MOST_LINES = 1000


class Attempt(NamedTuple):
    """One attempt on the timeline, a bar: from its start to its end, as parts of 1000."""

    number: int | None
    state: str
    reason: str | None
    worker: str | None
    started_at: float | None
    ended_at: float | None
    waited: float | None  # seconds from when it was due
    took: float | None
    error: str | None
    left: float = 0.0
    width: float = 0.0


def show(asked: Asked) -> Response:
    verbs, id = asked.verbs, _id(asked)
    job, why = verbs.get(id), verbs.why(id)
    events = verbs.history(None, MOST_EVENTS, id)
    if job is None and not events:
        raise NotFound(why.sentence)
    notes = verbs.notes(id)
    place = None if job is None else member_of(job.body)
    return asked.page(
        "job.html",
        title=f"Job {id}",
        cli=f"penstock why {id}",
        id=id,
        job=job,
        why=why,
        arguments=_arguments(job, events),
        options=_options(job),
        attempts=_timeline(job, events, verbs.now),
        events=[event for event in events if event.kind != "attempt"],
        told=_told,
        progress=_progress(notes),
        snapshots=[note for note in notes if note.kind == "snapshot"],
        steps=[note for note in notes if note.kind == "step"],
        lines=_lines(notes)[-MOST_LINES:],
        flow=None if place is None else place.id,
        can=_can(job),
    )


def cancel(asked: Asked) -> Response:
    return _act(asked, asked.verbs.cancel)


def retry(asked: Asked) -> Response:
    return _act(asked, asked.verbs.retry)


def delete(asked: Asked) -> Response:
    return _act(asked, asked.verbs.delete)


def _act(asked: Asked, verb: Callable[[Sequence[str], str], list[str]]) -> Response:
    id = _id(asked)
    if not verb([id], asked.form().get("reason", "")):
        raise Conflict(f"The job was left as it is. {asked.verbs.why(id).sentence}")
    return asked.go(f"/jobs/{id}")


def _id(asked: Asked) -> str:
    from penstock.ids import parse_id

    try:
        return parse_id(asked.part("id"))
    except Refused as error:
        raise NotFound(str(error)) from None


def _can(job: Job[Any] | None) -> list[str]:
    """What can be done to a job that stands so."""
    if job is None:
        return []
    if job.state in {State.FAILED, State.CANCELLED}:
        return ["retry", "delete"]
    if job.state is State.RUNNING:
        return ["cancel"]
    return ["delete"] if job.state in ENDED else ["cancel", "delete"]


def _arguments(job: Job[Any] | None, events: Sequence[Event]) -> bytes | None:
    """As they are stored; of a job that is not kept, as its last row in the history has them."""
    kept = [event.body for event in events if event.body is not None]
    body = job.body if job is not None else kept[-1] if kept else None
    return None if body is None else _part(body, "args")


def _options(job: Job[Any] | None) -> dict[str, Any]:
    whole = None if job is None else decoded(job.body)
    if not isinstance(whole, dict):
        return {}
    return {name: value for name, value in whole.items() if name not in {"args", "secret", "flow"}}  # pyright: ignore[reportUnknownVariableType]


def _part(body: bytes, name: str) -> bytes:
    """One field of a body, to the letter: numbers of any length stay as they are."""
    try:
        return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(name, body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body


def _timeline(job: Job[Any] | None, events: Sequence[Event], now: float) -> list[Attempt]:
    attempts = [
        Attempt(
            event.attempt,
            event.state or "",
            event.reason,
            event.worker,
            event.started_at,
            event.at,
            _since(event.run_at or event.enqueued_at, event.started_at),
            _since(event.started_at, event.at),
            event.error,
        )
        for event in events
        if event.kind == "attempt"
    ]
    if job is not None and job.state is State.RUNNING:
        began = job.claimed_at
        attempts.append(
            Attempt(job.attempt, "running", None, job.worker, began, None, None, None, None)
        )
    starts = [each.started_at for each in attempts if each.started_at is not None]
    if not starts:
        return attempts
    first = min([*starts, job.enqueued_at] if job is not None and job.enqueued_at else starts)
    last = max([each.ended_at or now for each in attempts])
    whole = max(last - first, 1e-6)
    return [
        each
        if each.started_at is None
        else each._replace(
            left=992 * (each.started_at - first) / whole,
            width=max(8.0, 1000 * ((each.ended_at or now) - each.started_at) / whole),
        )
        for each in attempts
    ]


def _since(before: float | None, at: float | None) -> float | None:
    return None if before is None or at is None else max(0.0, at - before)


def _told(event: Event) -> dict[str, Any]:
    """What an event says beside its kind, as words: who, why, how far."""
    data = decoded(event.data)
    if not isinstance(data, dict):
        return {} if data is None else {"data": data}
    return {str(name): value for name, value in data.items() if value not in (None, "")}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _progress(notes: Sequence[Note]) -> Progress | None:
    last = next((note for note in reversed(notes) if note.kind == "progress"), None)
    try:
        return None if last is None else msgspec.json.decode(last.value, type=Progress)
    except msgspec.MsgspecError:
        return None


def _lines(notes: Sequence[Note]) -> list[Line]:
    lines: list[Line] = []
    for note in notes:
        if note.kind == "log":
            try:
                lines += msgspec.json.decode(note.value, type=list[Line])
            except msgspec.MsgspecError:
                continue
    return lines
