"""Schedules as they stand: where each is, what comes next, and all of it for programs."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from penstock.errors import Refused
from penstock.operate.to_json import iso
from penstock.schedules.registered import next_slots
from penstock.schedules.schedule import Schedule, in_words, slots_after

LATE_SECONDS = 60.0  # beyond it nobody is there to decide a slot
LATE = "late: no worker is there to decide it"
LEFT = "nobody decides it: no worker has its code"
AHEAD = "decided ahead of the clock, which was wrong"


class LastJson(TypedDict):
    """The last decision about a slot."""

    says: str
    slot: str | None
    at: str | None


class ScheduleJson(TypedDict):
    """A schedule."""

    name: str
    task: str
    queue: str
    cron: str | None
    cron_in_words: str | None
    zone: str
    every: float | None
    at: str | None
    missed: str
    window: float | None
    overlap: str
    from_code: bool
    paused: bool
    state: str
    created_at: str | None
    decided_until: str | None
    last: LastJson | None
    last_job: str | None
    next: list[str]


def state_of(schedule: Schedule, now: float) -> str:
    """Where a schedule stands, in a word or two."""
    if schedule.paused:
        return "paused"
    try:
        first = next(slots_after(schedule, schedule.decided_until), None)
    except Refused as error:
        return f"unreadable: {error}"
    if first is None:
        return "over"
    if now - first > LATE_SECONDS:
        return LEFT if schedule.from_code else LATE
    return AHEAD if schedule.decided_until - now > LATE_SECONDS else "on"


def slots_to_come(schedule: Schedule, now: float, count: int) -> list[datetime]:
    """The next slots; of one whose times cannot be read, none."""
    try:
        return next_slots(schedule, now, count)
    except Refused:
        return []


def cron_in_words(schedule: Schedule) -> str | None:
    """When it is due, as a person reads it; None without a cron, and of one that is none."""
    try:
        return None if schedule.cron is None else in_words(schedule.cron)
    except Refused:
        return None


def moved_by(before: datetime, slot: datetime) -> float:
    """By how many minutes the zone's clocks were set in between."""
    was, is_now = before.utcoffset(), slot.utcoffset()
    return 0.0 if was is None or is_now is None else (is_now - was).total_seconds() / 60


def schedule_json(schedule: Schedule, now: float, count: int) -> ScheduleJson:
    """A schedule for programs, with so many of its next slots."""
    last = schedule.last
    return {
        "name": schedule.name,
        "task": schedule.job.task,
        "queue": schedule.job.queue,
        "cron": schedule.cron,
        "cron_in_words": cron_in_words(schedule),
        "zone": schedule.zone,
        "every": schedule.every,
        "at": iso(schedule.at),
        "missed": schedule.missed,
        "window": schedule.window,
        "overlap": schedule.overlap,
        "from_code": schedule.from_code,
        "paused": schedule.paused,
        "state": state_of(schedule, now),
        "created_at": iso(schedule.created_at),
        "decided_until": iso(schedule.decided_until),
        "last": last and {"says": last.says, "slot": iso(last.slot), "at": iso(last.at)},
        "last_job": schedule.last_job,
        "next": [slot.isoformat() for slot in slots_to_come(schedule, now, count)],
    }
