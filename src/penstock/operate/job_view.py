"""Everything about one job: what `penstock show`, the page of a job and REST show alike.

Secrets are hidden, and what is long is read up to a bound, newest first; how much of it is shown is
up to the surface. A job that is no longer kept still has the rows of its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.position import Position
from penstock.broker.views import Event, Note, Page, Why
from penstock.enqueue.copy import COPY_OF
from penstock.enqueue.ids import parse_id
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, NodeRow, member_of
from penstock.flows.spawn_links import MOST_NAMED, SPAWNED_BY, Spawned, spawned_in, spawner_in
from penstock.job import PARENT, Job, State
from penstock.operate.refusals import NotFound
from penstock.operate.to_json import decoded, event_data
from penstock.run.job_notes import LogLine, Progress

MOST_EVENTS = 200
MOST_NEEDS = 5
_NOT_OPTIONS = frozenset({"args", "secret", "flow", "headers"})
_LINKS = frozenset({COPY_OF, SPAWNED_BY})  # headers that are shown as links


class Attempt(NamedTuple):
    """One attempt; times in seconds."""

    number: int | None
    state: str
    reason: str | None
    worker: str | None
    started_at: float | None
    ended_at: float | None
    waited: float | None  # from when it was due
    took: float | None
    error: str | None


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


class SpawnedJob(NamedTuple):
    """A job that this one spawned or enqueued; no task: it is not kept any more."""

    id: str
    task: str | None
    state: State | None


class JobView(NamedTuple):
    """One job with all that is known about it; `job` is None if only its history is kept."""

    id: str
    job: Job[Any] | None
    why: Why
    arguments: bytes | None  # JSON
    options: dict[str, Any]
    headers: dict[str, Any]
    attempts: list[Attempt]
    events: list[JobEvent]
    progress: Progress | None
    snapshots: list[Note]
    steps: list[Note]
    lines: list[LogLine]
    place: PlaceInFlow | None
    parent: str | None  # the job that spawned or enqueued it
    copy_of: str | None
    spawned: Spawned | None
    children: list[SpawnedJob]  # some of those that it spawned or enqueued


class ReadsJobs(Protocol):
    """A broker, or a store whose reads are checked."""

    def get(self, id: str, /) -> Job[Any] | None: ...
    def why(self, id: str, /) -> Why: ...
    def history(self, after: Position | None, limit: int, job: str | None, /) -> list[Event]: ...
    def notes(self, id: str, /) -> list[Note]: ...
    def flow(self, id: str, /) -> FlowRow | None: ...
    def find(self, filter: Filter, after: str | None, limit: int, /) -> Page: ...


def view_job(store: ReadsJobs, id: str) -> JobView:
    """The job of this id; `NotFound` if neither it nor its history is kept."""
    job, why = store.get(id), store.why(id)
    events = store.history(None, MOST_EVENTS, id)
    if job is None and not events:
        raise NotFound(why.sentence)
    if job is not None:
        job = msgspec.structs.replace(job, body=redact(job.body))
    notes = store.notes(id)
    options = _options(job)
    headers = cast("Mapping[str, Any]", options.get("headers") or {})
    spawned = _spawned(events)
    place = None if job is None else _place(store, job)
    return JobView(
        id,
        job,
        why,
        _arguments(job, events),
        {name: value for name, value in options.items() if name not in _NOT_OPTIONS},
        {name: value for name, value in headers.items() if name not in _LINKS},
        _attempts(job, events),
        [job_event(event) for event in events if event.kind != "attempt"],
        _progress(notes),
        [note for note in notes if note.kind == "snapshot"],
        [note for note in notes if note.kind == "step"],
        _lines(notes),
        place,
        None if job is None else _parent(store, job, headers, place),
        _id_in(headers.get(COPY_OF)),
        spawned,
        _children(store, job, spawned),
    )


def _id_in(text: object) -> str | None:
    try:
        return parse_id(text) if isinstance(text, str) and text else None
    except Refused:
        return None


def _arguments(job: Job[Any] | None, events: Sequence[Event]) -> bytes | None:
    """The stored arguments; if the job is not kept, those of its last history row."""
    kept = [event.body for event in events if event.body is not None]
    body = job.body if job is not None else redact(kept[-1]) if kept else None
    return None if body is None else _part(body, "args")


def _part(body: bytes, name: str) -> bytes:
    """One field of a body as raw JSON: numbers keep all their digits."""
    try:
        return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(name, body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body


def _options(job: Job[Any] | None) -> dict[str, Any]:
    whole = None if job is None else decoded(job.body)
    return cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}


def _attempts(job: Job[Any] | None, events: Sequence[Event]) -> list[Attempt]:
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
        waited = _since(job.run_at or job.enqueued_at, began)
        attempts.append(
            Attempt(job.attempt, "running", None, job.worker, began, None, waited, None, None)
        )
    return attempts


def _since(before: float | None, at: float | None) -> float | None:
    return None if before is None or at is None else max(0.0, at - before)


def _place(store: ReadsJobs, job: Job[Any]) -> PlaceInFlow | None:
    member = member_of(job.body)
    flow = None if member is None else store.flow(member.id)
    if member is None or flow is None:
        return None
    nodes = {node.id: node for node in flow.nodes}
    node = nodes.get(member.node)
    if node is None:
        return None
    needs = [nodes[need] for need in node.needs[:MOST_NEEDS] if need in nodes]
    return PlaceInFlow(flow, node, needs)


def _parent(
    store: ReadsJobs, job: Job[Any], headers: Mapping[str, Any], place: PlaceInFlow | None
) -> str | None:
    """The job that spawned or enqueued it; of most jobs of a map, the one that did so to the flow.

    In a flow that was not spawned as a whole, only the job itself can say.
    """
    own = _id_in(job.tags.get(PARENT)) or _id_in(spawner_in(headers))
    if own is not None or place is None or place.flow.id == job.id:
        return own
    return spawner_of(store, place.flow.id)


def spawner_of(store: ReadsJobs, flow: str) -> str | None:
    """The job that spawned a flow as a whole."""
    first = store.get(flow)  # the flow has the id of its last job
    headers = cast("Mapping[str, Any]", _options(first).get("headers") or {})
    return _id_in(spawner_in(headers))


def _spawned(events: Sequence[Event]) -> Spawned | None:
    """What all attempts spawned: one that runs again on purpose may do so each time."""
    found = [said for event in events if (said := spawned_in(event.data)) is not None]
    if not found:
        return None
    ids = tuple(id for said in found for id in said.ids)
    flow = next((said.flow for said in reversed(found) if said.flow is not None), None)
    return Spawned(sum(said.jobs for said in found), ids[-MOST_NAMED:], flow)


def _children(store: ReadsJobs, job: Job[Any] | None, spawned: Spawned | None) -> list[SpawnedJob]:
    ids = () if spawned is None else spawned.ids
    jobs = {id: store.get(id) for id in ids}
    if job is not None and (job.detached or PARENT in job.tags):
        found = store.find(Filter(tags={PARENT: (job.id,)}), None, MOST_NAMED)
        jobs |= {each.id: each for each in found.jobs}
    return [
        SpawnedJob(id, None if each is None else each.task, None if each is None else each.state)
        for id, each in list(jobs.items())[:MOST_NAMED]
    ]


_DID = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}


def job_event(event: Event) -> JobEvent:
    """A row of history that is not an attempt, as people read it."""
    data = event_data(event)
    author, reason = str(data.pop("author", "") or ""), str(data.pop("reason", "") or "")
    did = _DID.get(event.kind, event.kind)
    if event.kind == "event" and (spawned := spawned_in(event.data)) is not None:
        jobs = "1 job" if spawned.jobs == 1 else f"{spawned.jobs:,} jobs"
        did, data = f"spawned {jobs}", {"flow": spawned.flow}
    elif event.kind == "event":
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
