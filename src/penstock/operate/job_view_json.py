"""Everything about one job as JSON: `penstock show --json`, and REST."""

from __future__ import annotations

from typing import Any, TypedDict

from penstock.operate.job_view import JobView
from penstock.operate.to_json import JobJson, decoded, iso, job_json


class CauseJson(TypedDict):
    """Why the job is in its state."""

    cause: str
    sentence: str


class AttemptJson(TypedDict):
    """One attempt; `waited` and `took` in seconds."""

    attempt: int | None
    state: str
    reason: str | None
    worker: str | None
    started_at: str | None
    ended_at: str | None
    waited: float | None
    took: float | None
    error: str | None


class JobEventJson(TypedDict):
    """Something that happened to the job, or that it said."""

    at: str | None
    did: str
    author: str
    reason: str
    data: dict[str, Any]


class ProgressJson(TypedDict):
    """How far it is, 0 to 1."""

    fraction: float
    note: str
    at: str | None


class LogLineJson(TypedDict):
    """A line that it logged."""

    at: str | None
    level: str
    text: str


class PlaceJson(TypedDict):
    """Its flow, the step that it is in, and the steps before that."""

    id: str
    name: str
    node: str
    jobs: int
    needs: list[str]


class ChildJson(TypedDict):
    """A job that it spawned or enqueued."""

    id: str
    task: str | None
    state: str | None


class SpawnedJson(TypedDict):
    """What it spawned: how many jobs, and the flow that joins them."""

    jobs: int
    flow: str | None


class JobViewJson(TypedDict):
    """Everything about one job; `job` is null if only its history is kept."""

    id: str
    why: CauseJson
    job: JobJson | None
    args: Any
    attempts: list[AttemptJson]
    events: list[JobEventJson]
    progress: ProgressJson | None
    snapshot: Any
    steps: dict[str, Any]
    log: list[LogLineJson]
    flow: PlaceJson | None
    parent: str | None
    copy_of: str | None
    spawned: SpawnedJson | None
    children: list[ChildJson]


def job_view_json(view: JobView) -> JobViewJson:
    """The view for programs."""
    place, progress, spawned = view.place, view.progress, view.spawned
    return {
        "id": view.id,
        "why": {"cause": view.why.cause, "sentence": view.why.sentence},
        "job": None if view.job is None else job_json(view.job),
        "args": decoded(view.arguments),
        "attempts": [
            {
                "attempt": each.number,
                "state": each.state,
                "reason": each.reason,
                "worker": each.worker,
                "started_at": iso(each.started_at),
                "ended_at": iso(each.ended_at),
                "waited": each.waited,
                "took": each.took,
                "error": each.error,
            }
            for each in view.attempts
        ],
        "events": [
            {
                "at": iso(each.at),
                "did": each.did,
                "author": each.author,
                "reason": each.reason,
                "data": each.more,
            }
            for each in view.events
        ],
        "progress": progress
        and {"fraction": progress.fraction, "note": progress.note, "at": iso(progress.at)},
        "snapshot": decoded(view.snapshots[-1].value) if view.snapshots else None,
        "steps": {each.name: decoded(each.value) for each in view.steps},
        "log": [
            {"at": iso(line.at), "level": line.level, "text": line.text} for line in view.lines
        ],
        "flow": place
        and {
            "id": place.flow.id,
            "name": place.flow.name,
            "node": place.node.id,
            "jobs": place.node.jobs,
            "needs": [node.id for node in place.needs],
        },
        "parent": view.parent,
        "copy_of": view.copy_of,
        "spawned": spawned and {"jobs": spawned.jobs, "flow": spawned.flow},
        "children": [
            {"id": each.id, "task": each.task, "state": each.state} for each in view.children
        ],
    }
