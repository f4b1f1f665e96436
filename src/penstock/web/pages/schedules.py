"""The pages of schedules: the list, and one schedule with its next ten slots and last decisions.

Slots are shown in the schedule's zone; a change to or from summer time between two is marked.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from starlette.responses import Response

from penstock.broker.filter import Filter, parse_time
from penstock.errors import Refused
from penstock.operate.sentences import MISSED_TEXTS, OVERLAP_TEXTS
from penstock.operate.to_json import event_data
from penstock.schedules.schedule import Schedule
from penstock.schedules.status import cron_in_words, moved_by, slots_to_come, state_of
from penstock.web.request import WebRequest

PAGE = 50
NEXT = 10
MOST_JOBS = 10
MOST_LOOKED_THROUGH = 1000  # decisions, of all schedules


class ScheduleLine(NamedTuple):
    """A schedule in the list."""

    schedule: Schedule
    state: str
    cron_in_words: str | None
    next: float | None


class Slot(NamedTuple):
    """A future slot; `moved`: minutes by which the zone's clocks change before it."""

    at: float
    text: str
    zone: str
    moved: float


class ScheduleDecision(NamedTuple):
    """A decision about a slot, from the history."""

    at: float
    says: str
    slot: float | None
    slots: int
    job: str | None
    author: str
    reason: str


def show(request: WebRequest) -> Response:
    store, word = request.store, request.word("q").strip()
    folded = word.casefold()
    found = [
        each
        for each in store.schedules()
        if folded in each.name.casefold() or folded in each.job.task.casefold()
    ]
    pager = request.pager("/schedules", PAGE, len(found), q=word or None)
    return request.page(
        "schedules.html",
        title="Schedules",
        cli="penstock schedules",
        q=word,
        rows=[_row(each, store.now) for each in found[pager["first"] :][:PAGE]],
        all_schedules=len(found),
        **pager,
    )


def one(request: WebRequest) -> Response:
    store, now = request.store, request.store.now
    schedule = store.schedule(request.word("name"))
    made = Filter(tags={"schedule": (schedule.name,)})
    return request.page(
        "schedule.html",
        title=f"Schedule {schedule.name}",
        cli=f"penstock schedules {shlex.quote(schedule.name)} --next {NEXT}",
        schedule=schedule,
        state=state_of(schedule, now),
        cron_in_words=cron_in_words(schedule),
        slots=_slots(slots_to_come(schedule, now, NEXT)),
        decisions=_decisions(request, schedule.name),
        missed=MISSED_TEXTS,
        overlap=OVERLAP_TEXTS,
        looked_through=MOST_LOOKED_THROUGH,
        jobs=store.find(made, limit=MOST_JOBS).jobs,
    )


def action(verb: str) -> Callable[[WebRequest], Response]:
    """Pause, resume, run or remove it."""

    def act(request: WebRequest) -> Response:
        form = request.form()
        name = form.get("name", "")
        job = request.store.act_on_schedule(verb, name, form.get("reason", ""))
        if job is not None:
            return request.go(f"/jobs/{job}")
        return (
            request.go("/schedules")
            if verb == "remove"
            else request.go("/schedules/one", name=name)
        )

    return act


def _row(schedule: Schedule, now: float) -> ScheduleLine:
    following = slots_to_come(schedule, now, 1)
    return ScheduleLine(
        schedule,
        state_of(schedule, now),
        cron_in_words(schedule),
        following[0].timestamp() if following else None,
    )


def _slots(moments: list[datetime]) -> list[Slot]:
    slots: list[Slot] = []
    before: datetime | None = None
    for moment in moments:
        moved = 0.0 if before is None else moved_by(before, moment)
        text, zone = f"{moment:%a %Y-%m-%d %H:%M:%S}", _zone(moment)
        slots.append(Slot(moment.timestamp(), text, zone, moved))
        before = moment
    return slots


def _zone(moment: datetime) -> str:
    name, offset = f"{moment:%Z}", f"{moment:%z}"
    return name if name == "UTC" or not name[:1].isalpha() else f"{name} {offset}"


def _decisions(request: WebRequest, name: str) -> list[ScheduleDecision]:
    """The last decisions about it, newest first."""
    found: list[ScheduleDecision] = []
    for event in request.store.decisions(MOST_LOOKED_THROUGH):
        data = event_data(event)
        if data.get("schedule") == name:
            found.append(
                ScheduleDecision(
                    event.at,
                    str(data.get("says", "")),
                    _moment(data.get("slot")),
                    data.get("slots", 1) if isinstance(data.get("slots", 1), int) else 1,
                    event.job,
                    str(data.get("author", "")),
                    str(data.get("reason", "")),
                )
            )
    return found[::-1]


def _moment(text: object) -> float | None:
    try:
        return parse_time(text, 0.0) if isinstance(text, str) else None
    except Refused:
        return None
