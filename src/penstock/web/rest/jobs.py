"""Jobs over REST: find, get, why, history, notes; enqueue, cancel, retry, delete, signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.broker.filter import parse_filter, words_of
from penstock.errors import Refused
from penstock.job import State
from penstock.operate.actions import ActionResult
from penstock.operate.job_view import view_job
from penstock.operate.job_view_json import JobViewJson, job_view_json
from penstock.operate.parse_input import moment_of, parse_names
from penstock.operate.refusals import NotFound
from penstock.operate.to_json import (
    EventJson,
    JobJson,
    chosen_fields,
    decoded,
    event_json,
    iso,
    job_json,
)
from penstock.web.request import WebRequest

MOST_JOBS = 1000
MOST_EVENTS = 1000


class JobPage(msgspec.Struct):
    """Jobs, newest first; `after` goes into the next call, null means no more.

    `examined` is the number of jobs that a filter on arguments without index has read: such a page
    may be short or empty, with more to come.
    """

    jobs: list[JobJson]
    after: str | None
    examined: int


class ChosenFields(msgspec.Struct):
    """Some fields of jobs, by id."""

    jobs: dict[str, dict[str, Any]]


class EventPage(msgspec.Struct):
    """Rows of history, oldest first; `after` goes into the next call."""

    events: list[EventJson]
    after: str | None


class WhyJson(msgspec.Struct):
    """Why a job is in its state."""

    id: str
    state: State | None
    cause: str
    sentence: str
    ahead: int | None


class NoteJson(msgspec.Struct):
    """One note of a job."""

    kind: str
    name: str
    value: Any
    at: str | None


class Notes(msgspec.Struct):
    """The notes of a job, oldest first."""

    notes: list[NoteJson]


class Act(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs by their ids, or a whole flow; the reason is kept in the history."""

    ids: list[str] = []
    flow: str | None = None
    reason: str = ""


class RetryJobs(Act, forbid_unknown_fields=True):
    """The same; `secrets` are values of secret arguments, which were deleted when the jobs ended.

    They are given by name, for jobs by their ids.
    """

    secrets: dict[str, Any] = {}


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a task: its arguments by name, and the options of this one job.

    With an `id` of your own (a UUIDv7) the call may be repeated: the job is stored once.
    """

    task: str
    args: Mapping[str, Any] = {}
    id: str | None = None
    queue: str | None = None
    delay: float | None = None
    at: datetime | None = None
    at_ns: int | None = None  # the same, in nanoseconds since 1970
    priority: int | None = None
    key: str | None = None
    unique: str | None = None
    unique_until: Literal["started", "ended", "time"] | None = None
    unique_for: float | None = None
    replace: bool | None = None
    tags: Mapping[str, str] | None = None
    reason: str = ""


class EnqueueAnswer(msgspec.Struct):
    """The job that is stored."""

    id: str


class Copy(msgspec.Struct, forbid_unknown_fields=True):
    """A new job like one that has ended; with `args`, these are all of its arguments."""

    args: dict[str, msgspec.Raw] | None = None  # raw: numbers keep all their digits
    reason: str = ""


class Signal(msgspec.Struct, forbid_unknown_fields=True):
    """A signal, and the value with which waiting jobs end."""

    name: str
    value: Any = None
    reason: str = ""


class Signalled(msgspec.Struct):
    """The jobs that waited for it."""

    done: list[str]


def find(request: WebRequest) -> JobPage:
    filter = parse_filter(words_of(request.word("q")), request.store.now)
    limit = request.number("limit", 100, 1, MOST_JOBS)
    page = request.store.find(filter, request.word("after") or None, limit)
    return JobPage([job_json(job) for job in page.jobs], page.after, page.examined)


def get_many(request: WebRequest) -> ChosenFields:
    """The fields that are asked for, of the jobs that are asked for; unknown ids are left out."""
    ids, fields = parse_names(request.word("ids")) or (), parse_names(request.word("fields"))
    found = request.store.get_many(ids)
    return ChosenFields({id: chosen_fields(job, fields) for id, job in found.items()})


def get(request: WebRequest) -> JobJson:
    id = request.id()
    job = request.store.get(id)
    if job is None:
        raise NotFound(request.store.why(id).sentence)
    return job_json(job)


def why(request: WebRequest) -> WhyJson:
    answer = request.store.why(request.id())
    if answer.state is None:
        raise NotFound(answer.sentence)
    return WhyJson(answer.job, answer.state, answer.cause, answer.sentence, answer.ahead)


def show(request: WebRequest) -> JobViewJson:
    return job_view_json(view_job(request.store, request.id()))


def history_of(request: WebRequest) -> EventPage:
    return _events(request, request.id())


def history(request: WebRequest) -> EventPage:
    return _events(request, None)


def _events(request: WebRequest, job: str | None) -> EventPage:
    after = request.word("after") or None
    rows = request.store.history(after, request.number("limit", 100, 1, MOST_EVENTS), job)
    return EventPage([event_json(row) for row in rows], rows[-1].position if rows else after)


def notes(request: WebRequest) -> Notes:
    found = request.store.notes(request.id(), request.word("kind") or None)
    return Notes(
        [NoteJson(note.kind, note.name, decoded(note.value), iso(note.at)) for note in found]
    )


def action(verb: str) -> Callable[[WebRequest], ActionResult]:
    """Cancel, retry or delete."""

    def act(request: WebRequest) -> ActionResult:
        given = request.json(RetryJobs if verb == "retry" else Act)
        secrets = given.secrets if isinstance(given, RetryJobs) else {}
        if bool(given.ids) == (given.flow is not None):
            raise Refused(
                f"{verb} what? Give ids or a flow; for a filter use POST /api/v1/operations"
            )
        if given.flow is None:
            return request.store.act(verb, given.ids, given.reason, secrets=secrets)
        if secrets:
            raise Refused("secrets are for jobs that are named by their ids")
        return request.store.act_on_flow(verb, given.flow, given.reason)[1]

    return act


def enqueue(request: WebRequest) -> EnqueueAnswer:
    given = request.json(NewJob)
    task = request.task(given.task)
    options: Any = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not None and name not in {"task", "args", "reason", "id", "at_ns"}
    }
    if given.at_ns is not None:
        if given.at is not None:
            raise Refused("at and at_ns both say when the job runs: give one of them")
        options["at"] = moment_of(given.at_ns, "at_ns")
    args, kwargs = task.codec.decode(msgspec.json.encode(given.args))
    job = task.options(headers={"author": request.store.author}, **options).job(*args, **kwargs)
    return EnqueueAnswer(request.store.enqueue(job, given.id, given.reason).id)


def copy(request: WebRequest) -> EnqueueAnswer:
    given, id = request.json(Copy), request.id()
    if request.store.get(id) is None:
        raise NotFound(request.store.why(id).sentence)
    args = None if given.args is None else msgspec.json.encode(given.args).decode()
    return EnqueueAnswer(request.store.copy(id, request.site.app, args, given.reason))


def signal(request: WebRequest) -> Signalled:
    given = request.json(Signal)
    return Signalled(request.store.signal(given.name, given.value, given.reason))
