"""The page of one job: why it is in its state, its attempts, arguments, result, error and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.broker.views import Event, Note
from penstock.enqueue.copy import COPY_OF
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, NodeRow, member_of
from penstock.job import PARENT, Job, State
from penstock.operate.bulk_actions import allowed_actions
from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.sentences import left_unchanged_text, secrets_gone_text
from penstock.operate.to_json import decoded, event_data
from penstock.run.job_notes import LogLine, Progress
from penstock.web.request import WebRequest, id_in

MOST_EVENTS = 200
MOST_LINES = 1000
MOST_NEEDS = 5
FORM_PREFIX = "secret."  # in a form, before the name of the argument


class Attempt(NamedTuple):
    """One attempt, and its bar on the timeline in thousandths of the width."""

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
    due: float = 0.0  # where its wait begins


class PlaceInFlow(NamedTuple):
    """The flow and the node of a job, and some of the node's needs."""

    flow: FlowRow
    node: NodeRow
    needs: list[NodeRow]


class JobEvent(NamedTuple):
    """An event: what was done, by whom and why, and its other data."""

    at: float
    did: str
    author: str
    reason: str
    more: dict[str, Any]


def show(request: WebRequest) -> Response:
    return _page(request)


def _page(request: WebRequest, typed: str | None = None, mistake: str = "") -> Response:
    """The page; after a refused copy with the arguments that were `typed`, and the mistake."""
    store, id = request.store, request.id()
    job, why = store.get(id), store.why(id)
    events = store.history(None, MOST_EVENTS, id)
    if job is None and not events:
        raise NotFound(why.sentence)
    notes = store.notes(id)
    attempts, spread = _timeline(job, events, store.now)
    options = _options(job)
    headers = options.get("headers", {})
    task = None if job is None or request.site.app is None else request.site.app.task_of(job)
    return request.page(
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
        events=[_job_event(event) for event in events if event.kind != "attempt"],
        progress=_progress(notes),
        snapshots=[note for note in notes if note.kind == "snapshot"],
        steps=[note for note in notes if note.kind == "step"],
        lines=_lines(notes)[-MOST_LINES:],
        member=None if job is None else _member(request, job),
        allowed=set() if job is None else allowed_actions(job),
        gone_secrets=store.gone_secrets(id),
        signature=None if task is None else task.signature_text,
        hidden=request.site.hide_arguments,
        typed=typed,
        mistake=mistake,
    )


def action(verb: str) -> Callable[[WebRequest], Response]:
    """Cancel, retry or delete it."""

    def act(request: WebRequest) -> Response:
        id, form = request.id(), request.form()
        secrets = {
            name.removeprefix(FORM_PREFIX): value
            for name, value in form.items()
            if name.startswith(FORM_PREFIX) and value
        }
        result = request.store.act(verb, [id], form.get("reason", ""), secrets=secrets)
        if result.secrets_gone:
            raise Conflict(secrets_gone_text(id, request.store.gone_secrets(id)))
        if result.left:
            raise Conflict(left_unchanged_text(id, request.store.why(id).sentence))
        return request.go(f"/jobs/{id}")

    return act


def copy(request: WebRequest) -> Response:
    """A new job like this one, with the arguments that were typed."""
    form = request.form()
    typed = form.get("arguments")
    try:
        made = request.store.copy(request.id(), request.site.app, typed, form.get("reason", ""))
    except Refused as error:
        return _page(request, typed, str(error))
    return request.go(f"/jobs/{made}")


def _arguments(job: Job[Any] | None, events: Sequence[Event]) -> bytes | None:
    """The stored arguments; if the job is not kept, those of its last history row."""
    kept = [event.body for event in events if event.body is not None]
    body = job.body if job is not None else kept[-1] if kept else None
    return None if body is None else _part(body, "args")


def _options(job: Job[Any] | None) -> dict[str, Any]:
    whole = None if job is None else decoded(job.body)
    if not isinstance(whole, dict):
        return {}
    return {name: value for name, value in whole.items() if name not in {"args", "secret", "flow"}}  # pyright: ignore[reportUnknownVariableType]


def _part(body: bytes, name: str) -> bytes:
    """One field of a body as raw JSON: numbers keep all their digits."""
    try:
        return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(name, body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body


def _timeline(
    job: Job[Any] | None, events: Sequence[Event], now: float
) -> tuple[list[Attempt], float]:
    """The attempts, and the seconds that the whole timeline covers."""
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


def _member(request: WebRequest, job: Job[Any]) -> PlaceInFlow | None:
    member = member_of(job.body)
    flow = None if member is None else request.store.flow(member.id)
    if member is None or flow is None:
        return None
    nodes = {node.id: node for node in flow.nodes}
    node = nodes.get(member.node)
    if node is None:
        return None
    needs = [nodes[need] for need in node.needs[:MOST_NEEDS] if need in nodes]
    return PlaceInFlow(flow, node, needs)


def _since(before: float | None, at: float | None) -> float | None:
    return None if before is None or at is None else max(0.0, at - before)


_DID = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


def _job_event(event: Event) -> JobEvent:
    data = event_data(event)
    author, reason = str(data.pop("author", "") or ""), str(data.pop("reason", "") or "")
    did = _DID.get(event.kind, event.kind)
    if event.kind == "event":
        did = str(data.pop("name", did))
    elif event.kind == "progress" and (progress := _progress_in(data)) is not None:
        did, data = f"{100 * progress.fraction:.0f} % {progress.note}", {}
    more = {str(name): value for name, value in data.items() if value not in (None, "", {}, [])}
    return JobEvent(event.at, did, author, reason, more)


def _progress_in(data: dict[str, Any]) -> Progress | None:
    try:
        return msgspec.convert(data.get("value"), Progress)
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
