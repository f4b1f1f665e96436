"""Schedules: what is due next and what became of the last slot; and one, with its next ten times.

Times are shown as the schedule's zone has them, and where its clocks are set between two of them,
the page says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, cast

from starlette.responses import Response

from penstock.broker.filter import Filter, parse_time
from penstock.errors import Refused
from penstock.operate.to_json import decoded
from penstock.schedules.schedule import Schedule
from penstock.schedules.status import cron_in_words, moved_by, slots_to_come, state_of
from penstock.web.request import Asked

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
    """A slot to come; `moved`: the minutes by which clocks are set before it."""

    at: float
    text: str
    zone: str
    moved: float


class Decided(NamedTuple):
    """A decision, as the history has it."""

    at: float
    says: str
    slot: float | None
    slots: int
    job: str | None
    author: str
    reason: str


def show(asked: Asked) -> Response:
    verbs, word = asked.verbs, asked.word("q").strip()
    wanted = word.casefold()
    found = [
        each
        for each in verbs.schedules()
        if wanted in each.name.casefold() or wanted in each.job.task.casefold()
    ]
    pager = asked.pager("/schedules", PAGE, len(found), q=word or None)
    return asked.page(
        "schedules.html",
        title="Schedules",
        cli="penstock schedules",
        q=word,
        rows=[_row(each, verbs.now) for each in found[pager["first"] :][:PAGE]],
        all_schedules=len(found),
        **pager,
    )


def one(asked: Asked) -> Response:
    verbs, now = asked.verbs, asked.verbs.now
    schedule = verbs.schedule(asked.word("name"))
    made = Filter(tags={"schedule": (schedule.name,)})
    return asked.page(
        "schedule.html",
        title=f"Schedule {schedule.name}",
        cli=f"penstock schedules {shlex.quote(schedule.name)} --next {NEXT}",
        schedule=schedule,
        state=state_of(schedule, now),
        cron_in_words=cron_in_words(schedule),
        slots=_slots(slots_to_come(schedule, now, NEXT)),
        decisions=_decisions(asked, schedule.name),
        looked_through=MOST_LOOKED_THROUGH,
        jobs=verbs.find(made, limit=MOST_JOBS).jobs,
    )


def acting(verb: str) -> Callable[[Asked], Response]:
    """Pause, resume, run or remove it."""

    def act(asked: Asked) -> Response:
        form = asked.form()
        name = form.get("name", "")
        job = asked.verbs.act_on_schedule(verb, name, form.get("reason", ""))
        if job is not None:
            return asked.go(f"/jobs/{job}")
        return asked.go("/schedules") if verb == "remove" else asked.go("/schedules/one", name=name)

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


def _decisions(asked: Asked, name: str) -> list[Decided]:
    """The last decisions about it, newest first."""
    found: list[Decided] = []
    for event in asked.verbs.decisions(MOST_LOOKED_THROUGH):
        data: Any = decoded(event.data)
        told = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        if told.get("schedule") == name:
            found.append(
                Decided(
                    event.at,
                    str(told.get("says", "")),
                    _moment(told.get("slot")),
                    told.get("slots", 1) if isinstance(told.get("slots", 1), int) else 1,
                    event.job,
                    str(told.get("author", "")),
                    str(told.get("reason", "")),
                )
            )
    return found[::-1]


def _moment(text: object) -> float | None:
    try:
        return parse_time(text, 0.0) if isinstance(text, str) else None
    except Refused:
        return None
