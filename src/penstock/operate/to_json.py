"""Jobs, history and rules as JSON, the same for the command line and REST.

Times are ISO in UTC, bodies are decoded, and declared secrets are hidden: the store has them in the
body of a job that has not run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict, cast

import msgspec

from penstock.broker.views import Event
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.job import Job, State, Unique
from penstock.operate.time_text import time_text
from penstock.rules.rule import Rule, RuleKind


class JobJson(TypedDict):
    """A job."""

    id: str
    task: str
    queue: str
    app: str
    state: State
    reason: str | None
    args: Any
    options: dict[str, Any]
    result: Any
    error: str | None
    version: int
    priority: int
    key: str | None
    unique: Unique | None
    runs_on: tuple[str, ...]
    tags: Mapping[str, str]
    attempt: int
    failures: int
    lapses: int
    repeats: int
    worker: str | None
    enqueued_at: str | None
    run_at: str | None
    claimed_at: str | None
    ended_at: str | None
    expires_at: str | None
    enqueued_at_ns: int | None  # nanoseconds since 1970, to the microsecond
    run_at_ns: int | None


class EventJson(TypedDict):
    """A row of history."""

    position: str
    kind: str
    at: str | None
    at_ns: int | None
    job: str | None
    app: str | None
    queue: str | None
    task: str | None
    version: int | None
    priority: int | None
    attempt: int | None
    state: State | None
    reason: str | None
    enqueued_at: str | None
    run_at: str | None
    started_at: str | None
    worker: str | None
    tags: Mapping[str, str]
    error: str | None
    args: Any
    result: Any
    data: Any


class RateJson(TypedDict):
    """A rate: starts per time."""

    jobs: int
    seconds: float


class RuleJson(TypedDict):
    """A rule."""

    id: str
    kind: RuleKind
    queue: str | None
    task: str | None
    author: str
    reason: str
    created_at: str | None
    until: str | None
    version: int | None
    tag: str | None
    key: str | None
    running: int | None
    rate: RateJson | None
    per_key: bool
    policy: str | None


def chosen_fields(job: Job[Any], fields: Collection[str] | None) -> dict[str, Any]:
    """Some fields of a job, by the names that `job_json` has; None: all of them."""
    whole = cast("dict[str, Any]", job_json(job))
    if unknown := [name for name in fields or () if name not in whole]:
        raise Refused(f"a job has no field {unknown[0][:60]!r}; there are {', '.join(whole)}")
    return whole if fields is None else {name: whole[name] for name in fields}


def nanoseconds(at: float | None) -> int | None:
    """A time for programs that count: whole nanoseconds since 1970, kept to the microsecond."""
    return None if at is None else round(at * 1_000_000) * 1000


def iso(at: float | None) -> str | None:
    """A time for programs: ISO, UTC."""
    if at is None:
        return None
    try:
        text = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    except (OverflowError, OSError, ValueError):
        return time_text(at)
    return text.replace("+00:00", "Z")


def decoded(raw: bytes | None) -> Any:
    """Stored JSON as a value; what is not JSON is returned as text."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"unreadable": raw.decode("utf-8", "backslashreplace")}


def event_data(event: Event) -> dict[str, Any]:
    """The details of a history row; empty if it has none, or they are not an object."""
    data = decoded(event.data)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def arguments_of(body: bytes | None) -> Any:
    """The arguments in a body, secrets hidden."""
    whole = None if body is None else decoded(redact(body))
    return whole.get("args", whole) if isinstance(whole, dict) else whole  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def call_text(body: bytes | None) -> str:
    """The arguments on one line."""
    arguments = arguments_of(body)
    if not isinstance(arguments, dict):
        return ""
    items: list[tuple[str, Any]] = list(arguments.items())  # pyright: ignore[reportUnknownArgumentType]
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in items)


def job_json(job: Job[Any]) -> JobJson:
    """A job for programs."""
    body = decoded(redact(job.body))
    whole = cast("dict[str, Any]", body) if isinstance(body, dict) else {"args": body}
    options = {name: value for name, value in whole.items() if name not in {"args", "secret"}}
    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "app": job.app,
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
        "enqueued_at_ns": nanoseconds(job.enqueued_at or None),
        "run_at_ns": nanoseconds(job.run_at),
    }


def event_json(event: Event) -> EventJson:
    """A row of history for programs."""
    return {
        "position": event.position,
        "kind": event.kind,
        "at": iso(event.at),
        "at_ns": nanoseconds(event.at),
        "job": event.job,
        "app": event.app,
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


def rule_json(rule: Rule) -> RuleJson:
    """A rule for programs."""
    return {
        "id": rule.id,
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
