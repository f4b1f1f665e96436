"""Schedules over REST: look at them, put, pause, resume, run and remove one by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.operate.actions import task_of
from penstock.schedules.status import ScheduleJson, schedule_json
from penstock.web.request import WebRequest

MOST_SLOTS = 100
MOST_SLOTS_IN_ALL = 1000
_NO_SLOT = "1970-01-01T00:00:00Z"  # a placeholder while the arguments are decoded


class ScheduleName(msgspec.Struct, forbid_unknown_fields=True):
    """A schedule by its name."""

    name: str
    reason: str = ""


class NewSchedule(msgspec.Struct, forbid_unknown_fields=True):
    """A schedule of one of the app's tasks: when (`cron`, `every` seconds, or once `at`), and what.

    The same name again replaces it. A parameter `slot` of the task that `args` leaves out receives
    the nominal time.
    """

    name: str
    task: str
    args: Mapping[str, Any] = {}
    cron: str | None = None
    zone: str = "UTC"
    every: float | None = None
    at: datetime | None = None
    missed: Literal["one", "skip", "all"] = "one"
    window: float | None = None
    overlap: Literal["allow", "skip", "cancel"] = "allow"
    at_once: bool = False
    queue: str | None = None
    reason: str = ""


class ScheduleList(msgspec.Struct):
    """Every schedule."""

    schedules: list[ScheduleJson]


class RunNow(msgspec.Struct):
    """The job that was enqueued."""

    job: str


class Removed(msgspec.Struct):
    """Whether there was such a schedule."""

    removed: bool


def list_all(request: WebRequest) -> ScheduleList:
    count, now = request.number("next", 1, 0, MOST_SLOTS), request.store.now
    name = request.word("name")
    found = [request.store.schedule(name)] if name else request.store.schedules()
    # A hundred slots of each of thousands of schedules would take minutes.
    count = min(count, max(1, MOST_SLOTS_IN_ALL // max(1, len(found))))
    return ScheduleList([schedule_json(each, now, count) for each in found])


def put(request: WebRequest) -> ScheduleJson:
    given, app = request.json(NewSchedule), request.app
    found = task_of(app, given.task)
    takes_slot = "slot" in found.parameters and "slot" not in given.args
    arguments = {**given.args, **({"slot": _NO_SLOT} if takes_slot else {})}
    args, kwargs = found.codec.decode(msgspec.json.encode(arguments))
    if takes_slot:
        kwargs = {name: value for name, value in kwargs.items() if name != "slot"}
    names = ("cron", "zone", "every", "at", "missed", "window", "overlap", "at_once", "reason")
    times = {name: getattr(given, name) for name in names}
    made = request.store.put_schedule(
        app,
        given.name,
        given.task,
        {} if given.queue is None else {"queue": given.queue},
        {**times, "args": args, "kwargs": kwargs},
    )
    return schedule_json(made, request.store.now, 1)


def hold_action(verb: str) -> Callable[[WebRequest], ScheduleJson]:
    """Pause or resume."""

    def act(request: WebRequest) -> ScheduleJson:
        given, store = request.json(ScheduleName), request.store
        acts = {"pause": store.pause_schedule, "resume": store.resume_schedule}
        return schedule_json(acts[verb](given.name, given.reason), store.now, 1)

    return act


def run(request: WebRequest) -> RunNow:
    given = request.json(ScheduleName)
    return RunNow(request.store.run_schedule(given.name, given.reason))


def remove(request: WebRequest) -> Removed:
    given = request.json(ScheduleName)
    return Removed(request.store.remove_schedule(given.name, given.reason))
