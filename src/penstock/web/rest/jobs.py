"""Jobs over REST: find, get, why, history, notes; enqueue, cancel, retry, delete, signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.broker.filter import parse_filter, words_of
from penstock.errors import Refused
from penstock.job import State
from penstock.operate.actions import Acted, task_of
from penstock.operate.refusals import NotFound
from penstock.operate.to_json import EventJson, JobJson, decoded, event_json, iso, job_json
from penstock.web.request import Asked

MOST_JOBS = 1000
MOST_EVENTS = 1000


class JobPage(msgspec.Struct):
    """Jobs, newest first; `after` goes into the next call, and null means that there are no more.

    `examined` is how many jobs a filter on arguments that are not indexed has looked at: such a
    page may be short, or empty, with more to come.
    """

    jobs: list[JobJson]
    after: str | None
    examined: int


class EventPage(msgspec.Struct):
    """Rows of history, oldest first; `after` goes into the next call."""

    events: list[EventJson]
    after: str | None


class WhyJson(msgspec.Struct):
    """Why a job is where it is."""

    id: str
    state: State | None
    cause: str
    sentence: str


class NoteJson(msgspec.Struct):
    """Something that a job left behind."""

    kind: str
    name: str
    value: Any
    at: str | None


class Notes(msgspec.Struct):
    """What a job left behind, oldest first."""

    notes: list[NoteJson]


class Act(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs by their ids, or a whole flow; the reason is kept in the history."""

    ids: list[str] = []
    flow: str | None = None
    reason: str = ""


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a task: its arguments by name, and the options of this one job.

    With an `id` of your own (a UUIDv7) the same call may be made again: it is stored once.
    """

    task: str
    args: Mapping[str, Any] = {}
    id: str | None = None
    queue: str | None = None
    delay: float | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    unique: str | None = None
    unique_until: Literal["started", "ended", "time"] | None = None
    unique_for: float | None = None
    tags: Mapping[str, str] | None = None
    reason: str = ""


class EnqueueAnswer(msgspec.Struct):
    """The job that is stored."""

    id: str


class Copy(msgspec.Struct, forbid_unknown_fields=True):
    """A new job like one that has ended; with `args`, these are all of its arguments."""

    args: dict[str, msgspec.Raw] | None = None  # to the letter: numbers of any length
    reason: str = ""


class Signal(msgspec.Struct, forbid_unknown_fields=True):
    """A signal, and the value that ends whoever waits for it."""

    name: str
    value: Any = None
    reason: str = ""


class Signalled(msgspec.Struct):
    """The jobs that waited for it."""

    done: list[str]


def find(asked: Asked) -> JobPage:
    wanted = parse_filter(words_of(asked.word("q")), asked.verbs.now)
    limit = asked.number("limit", 100, 1, MOST_JOBS)
    page = asked.verbs.find(wanted, asked.word("after") or None, limit)
    return JobPage([job_json(job) for job in page.jobs], page.after, page.examined)


def get(asked: Asked) -> JobJson:
    id = asked.id()
    job = asked.verbs.get(id)
    if job is None:
        raise NotFound(asked.verbs.why(id).sentence)
    return job_json(job)


def why(asked: Asked) -> WhyJson:
    answer = asked.verbs.why(asked.id())
    if answer.state is None:
        raise NotFound(answer.sentence)
    return WhyJson(answer.job, answer.state, answer.cause, answer.sentence)


def history_of(asked: Asked) -> EventPage:
    return _events(asked, asked.id())


def history(asked: Asked) -> EventPage:
    return _events(asked, None)


def _events(asked: Asked, job: str | None) -> EventPage:
    after = asked.word("after") or None
    rows = asked.verbs.history(after, asked.number("limit", 100, 1, MOST_EVENTS), job)
    return EventPage([event_json(row) for row in rows], rows[-1].position if rows else after)


def notes(asked: Asked) -> Notes:
    found = asked.verbs.notes(asked.id(), asked.word("kind") or None)
    return Notes(
        [NoteJson(note.kind, note.name, decoded(note.value), iso(note.at)) for note in found]
    )


def acting(verb: str) -> Callable[[Asked], Acted]:
    """Cancel, retry or delete."""

    def act(asked: Asked) -> Acted:
        given = asked.json(Act)
        if bool(given.ids) == (given.flow is not None):
            raise Refused(f"{verb} what? Give ids, or a flow; a filter is an operation's")
        if given.flow is not None:
            return Acted(asked.verbs.act_on_flow(verb, given.flow, given.reason)[1], [])
        return asked.verbs.act(verb, given.ids, given.reason)

    return act


def enqueue(asked: Asked) -> EnqueueAnswer:
    given = asked.json(NewJob)
    task = task_of(asked.app, given.task)
    options: Any = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not None and name not in {"task", "args", "reason", "id"}
    }
    args, kwargs = task.codec.decode(msgspec.json.encode(given.args))
    job = task.options(headers={"author": asked.verbs.author}, **options).job(*args, **kwargs)
    return EnqueueAnswer(asked.verbs.enqueue(job, given.id, given.reason).id)


def copy(asked: Asked) -> EnqueueAnswer:
    given, id = asked.json(Copy), asked.id()
    if asked.verbs.get(id) is None:
        raise NotFound(asked.verbs.why(id).sentence)
    args = None if given.args is None else msgspec.json.encode(given.args).decode()
    return EnqueueAnswer(asked.verbs.copy(id, asked.site.app, args, given.reason))


def signal(asked: Asked) -> Signalled:
    given = asked.json(Signal)
    return Signalled(asked.verbs.signal(given.name, given.value, given.reason))
