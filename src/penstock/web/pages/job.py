"""One job: why it is where it is, its attempts, what it carries, and what it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.broker.views import Event, Note
from penstock.enqueue.copy import COPY_OF
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, NodeRow, member_of
from penstock.job import ENDED, PARENT, Job, State
from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.sentences import left_as_it_is
from penstock.operate.to_json import decoded
from penstock.run.job_notes import LogLine, Progress
from penstock.web.request import Asked, id_in

MOST_EVENTS = 200
MOST_LINES = 1000
MOST_NEEDS = 5


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
    due: float = 0.0  # from where on it waited


class PlaceInFlow(NamedTuple):
    """Where a job is in its flow."""

    flow: FlowRow
    node: NodeRow
    needs: list[NodeRow]  # as many as are named


class Happened(NamedTuple):
    """An event in words: what was done, by whom and why; and what else it holds."""

    at: float
    did: str
    author: str
    reason: str
    more: dict[str, Any]


def show(asked: Asked) -> Response:
    return _page(asked)


def _page(asked: Asked, typed: str | None = None, mistake: str = "") -> Response:
    """The page of a job; with what somebody `typed` as arguments of a copy, and why not."""
    verbs, id = asked.verbs, asked.id()
    job, why = verbs.get(id), verbs.why(id)
    events = verbs.history(None, MOST_EVENTS, id)
    if job is None and not events:
        raise NotFound(why.sentence)
    notes = verbs.notes(id)
    attempts, spread = _timeline(job, events, verbs.now)
    options = _options(job)
    headers = options.get("headers", {})
    task = None if job is None or asked.site.app is None else asked.site.app.task_of(job)
    return asked.page(
        "job.html",
        422 if mistake else 200,
        title=id if job is None else f"{job.task} {id}",
        cli=f"penstock why {id}",
        id=id,
        job=job,
        why=why,
        arguments=_arguments(job, events),
        options={name: value for name, value in options.items() if name != "headers"},
        headers={name: value for name, value in headers.items() if name != COPY_OF},
        copy_of=id_in(headers.get(COPY_OF)),
        parent=None if job is None else id_in(job.tags.get(PARENT)),
        attempts=attempts,
        spread=spread,
        events=[_happened(event) for event in events if event.kind != "attempt"],
        progress=_progress(notes),
        snapshots=[note for note in notes if note.kind == "snapshot"],
        steps=[note for note in notes if note.kind == "step"],
        lines=_lines(notes)[-MOST_LINES:],
        step=None if job is None else _step(asked, job),
        can=_can(job),
        signature=None if task is None else task.signature_text,
        hidden=asked.site.hide_arguments,
        typed=typed,
        mistake=mistake,
    )


def acting(verb: str) -> Callable[[Asked], Response]:
    """Cancel, retry or delete it."""

    def act(asked: Asked) -> Response:
        id = asked.id()
        if asked.verbs.act(verb, [id], asked.form().get("reason", "")).left:
            raise Conflict(left_as_it_is(id, asked.verbs.why(id).sentence))
        return asked.go(f"/jobs/{id}")

    return act


def copy(asked: Asked) -> Response:
    """A new job like this one, with the arguments that were typed."""
    form = asked.form()
    typed = form.get("arguments")
    try:
        made = asked.verbs.copy(asked.id(), asked.site.app, typed, form.get("reason", ""))
    except Refused as error:
        return _page(asked, typed, str(error))
    return asked.go(f"/jobs/{made}")


def _can(job: Job[Any] | None) -> list[str]:
    """What can be done to a job that stands so."""
    if job is None:
        return []
    if job.state in {State.FAILED, State.CANCELLED}:
        return ["retry", "copy", "delete"]
    if job.state is State.RUNNING:
        return ["cancel"]
    return ["copy", "delete"] if job.state in ENDED else ["cancel", "delete"]


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


def _timeline(
    job: Job[Any] | None, events: Sequence[Event], now: float
) -> tuple[list[Attempt], float]:
    """The attempts, and how many seconds their bars are spread over."""
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
        return attempts, 0.0
    first = min([*starts, job.enqueued_at] if job is not None and job.enqueued_at else starts)
    whole = max(max(each.ended_at or now for each in attempts) - first, 1e-6)
    return [_placed(each, first, whole, now) for each in attempts], whole


def _placed(each: Attempt, first: float, whole: float, now: float) -> Attempt:
    if each.started_at is None:
        return each
    left = 992 * (each.started_at - first) / whole
    return each._replace(
        left=left,
        width=max(8.0, 1000 * ((each.ended_at or now) - each.started_at) / whole),
        due=max(0.0, left - 992 * (each.waited or 0.0) / whole),
    )


def _step(asked: Asked, job: Job[Any]) -> PlaceInFlow | None:
    place = member_of(job.body)
    flow = None if place is None else asked.verbs.flow(place.id)
    if place is None or flow is None:
        return None
    nodes = {node.id: node for node in flow.nodes}
    node = nodes.get(place.node)
    if node is None:
        return None
    needs = [nodes[need] for need in node.needs[:MOST_NEEDS] if need in nodes]
    return PlaceInFlow(flow, node, needs)


def _since(before: float | None, at: float | None) -> float | None:
    return None if before is None or at is None else max(0.0, at - before)


_DID = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


def _happened(event: Event) -> Happened:
    data = decoded(event.data)
    told: dict[str, Any] = dict(data) if isinstance(data, dict) else {"data": data}  # pyright: ignore[reportUnknownArgumentType]
    author, reason = str(told.pop("author", "") or ""), str(told.pop("reason", "") or "")
    did = _DID.get(event.kind, event.kind)
    if event.kind == "event":
        did = str(told.pop("name", did))
    elif event.kind == "progress" and (far := _far(told.get("value"))) is not None:
        did, told = f"{100 * far.fraction:.0f} % {far.note}", {}
    more = {str(name): value for name, value in told.items() if value not in (None, "", {}, [])}
    return Happened(event.at, did, author, reason, more)


def _far(value: object) -> Progress | None:
    try:
        return msgspec.convert(value, Progress)
    except msgspec.ValidationError:
        return None


def _progress(notes: Sequence[Note]) -> Progress | None:
    last = next((note for note in reversed(notes) if note.kind == "progress"), None)
    try:
        return None if last is None else msgspec.json.decode(last.value, type=Progress)
    except msgspec.MsgspecError:
        return None


def _lines(notes: Sequence[Note]) -> list[LogLine]:
    lines: list[LogLine] = []
    for note in notes:
        if note.kind == "log":
            try:
                lines += msgspec.json.decode(note.value, type=list[LogLine])
            except msgspec.MsgspecError:
                continue
    return lines
