"""Schedules: when a task's jobs are due, and what becomes of each slot. Pure: no clock, no store.

A slot is one nominal time of a schedule. Slots are decided in order and each once: the schedule's
own record says until where (`decided_until`), and `revision` is the fence of whoever decides next.
The jobs that it made have no say in that: deleting them all changes nothing.

    slots_after --> plan (missed, overlap, paused) --> decisions --> broker.decide_schedule

Daylight saving, for a cron that names hours: what falls into the hour that is left out runs once,
at the end of it, and what occurs twice runs the first time. A cron with `*` for the hour, and an
interval, go by time that has really passed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from penstock.broker.filter import argument_text
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.job import Job

Missed = Literal["one", "skip", "all"]
Overlap = Literal["allow", "skip", "cancel"]

SHORTEST_SECONDS = 1.0
LATE = "late/"  # how the names of schedules begin that are late jobs, see `schedules.late`
RUN_NOW = "run now"  # what a decision says when a person asked for a job at once
ON_TIME_SECONDS = 60.0  # how late a slot may be decided before `missed="skip"` calls it missed
ALL_WINDOW_SECONDS = 86400.0
MOST_SLOTS = 10_000  # looked at in one plan
MOST_JOBS = 500  # made by one plan, which is one transaction
MOST_CRON = 500  # characters
_TAG = "schedule"  # the tag of its jobs
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY_HOUR = set(range(24))
_ORDINALS = {"1": "1st", "2": "2nd", "3": "3rd"}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a slot, about a run of slots alike, or by a person.

    `says` is one of: enqueued, enqueued: cancelled old, skipped: missed, skipped: overlap, skipped:
    paused; and of people, with no slot decided: paused, resumed, run now.
    """

    says: str
    slot: float = 0.0  # the last of them
    first: float = 0.0
    slots: int = 0  # how many; 0: the schedule's position stays
    job: Job[Any] | None = None  # to be stored
    cancels: str | None = None  # the job that is to end first
    author: str = ""
    reason: str = ""


class Last(msgspec.Struct, frozen=True):
    """The last decision about a slot, for people to look at."""

    says: str
    slot: float
    at: float


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs at times. The first group is the caller's; the second is what the store adds.

    Exactly one of `cron`, `every` and `at` says when.
    """

    name: str
    job: Job[Any]  # what the job of each slot is made of
    cron: str | None = None
    zone: str = "UTC"
    every: float | None = None  # seconds
    at: float | None = None  # once
    at_once: bool = False  # the first slot is the moment that it is put
    missed: Missed = "one"
    window: float | None = None  # slots older than this are missed for good
    overlap: Overlap = "allow"
    takes_slot: bool = False  # the task has a parameter for the nominal time
    expires: float | None = None  # seconds within which a job must have started
    from_code: bool = False  # decided only by workers whose code has it
    put_by: str = ""  # of the code: the worker that put it like this

    paused: bool = False
    created_at: float = 0.0
    starts_at: float = 0.0  # what intervals count from: when it was put with these times
    decided_until: float = 0.0
    revision: int = 0
    last: Last | None = None
    last_job: str | None = None

    @property
    def times(self) -> str:
        """When, as a person says it."""
        if self.cron is not None:
            return f"{self.cron} ({self.zone})"
        if self.every is not None:
            return f"every {self.every:g} s"
        return "once"

    def moment(self, slot: float) -> datetime:
        """The slot as its zone shows it."""
        return datetime.fromtimestamp(slot, zone_named(self.zone))


def check_schedule(schedule: Schedule) -> Schedule:
    """The schedule; refused if its times are invalid, or never come."""
    given = [each for each in (schedule.cron, schedule.every, schedule.at) if each is not None]
    if len(given) != 1:
        raise Refused(
            f"schedule {schedule.name}: give one of a cron, every=... and at=..., not {len(given)}"
        )
    zone_named(schedule.zone)
    if schedule.every is not None and not SHORTEST_SECONDS <= schedule.every < math.inf:
        raise Refused(f"schedule {schedule.name}: every={schedule.every!r}: one second or more")
    if schedule.missed not in ("one", "skip", "all"):
        raise Refused(f'schedule {schedule.name}: missed={schedule.missed!r}: "one", "skip", "all"')
    if schedule.overlap not in ("allow", "skip", "cancel"):
        raise Refused(
            f'schedule {schedule.name}: overlap={schedule.overlap!r}: "allow", "skip", "cancel"'
        )
    if schedule.window is not None and not 0 < schedule.window < math.inf:
        raise Refused(f"schedule {schedule.name}: window={schedule.window!r}: more than 0 seconds")
    if schedule.cron is not None:
        start = datetime(2000, 1, 1, tzinfo=UTC)
        if next(CronSim(_fields(schedule.cron), start), None) is None:
            raise Refused(f"schedule {schedule.name}: {schedule.cron!r} is never due")
    return schedule


@lru_cache(64)
def zone_named(name: str) -> ZoneInfo:
    """The zone of this name, as the time zone database spells it."""
    try:
        return ZoneInfo(name)
    except Exception as error:
        raise Refused(
            f"zone {name!r} is not in the time zone database; write a name such as Europe/Paris"
        ) from error


@lru_cache(1024)
def _fields(cron: str) -> str:
    """The expression as cronsim is given it."""
    # Workers read it again and again: of 200,000 minutes that takes seconds each time.
    if len(cron) > MOST_CRON:
        raise Refused(f"cron {cron[:40]!r}…: {len(cron):,} characters, {MOST_CRON} at most")
    fields = _split_fields(cron)
    if len(fields) != 5:
        raise Refused(
            f"cron {cron!r}: five fields, minute hour day month weekday, or one of"
            f" {', '.join(_NICKNAMES)}; for seconds use every=..."
        )
    try:
        parsed = CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError) as error:
        raise Refused(f"cron {cron!r}: {error or 'not an expression'}") from error
    if parsed.hours == _EVERY_HOUR:
        fields[1] = "*"
        return " ".join(fields)
    # A star in front, as in */30, would make cronsim go by time passed: twice in the hour that
    # comes twice, and never in the one that is left out.
    for index, numbers in ((0, parsed.minutes), (1, parsed.hours)):
        fields[index] = ",".join(map(str, sorted(numbers)))
    return " ".join(fields)


def _split_fields(cron: str) -> list[str]:
    return _NICKNAMES.get(cron.strip().lower(), cron).split()


@lru_cache(1024)
def in_words(cron: str) -> str:
    """When that is, as a person reads it, by the clocks of the schedule's zone."""
    _fields(cron)
    text = CronSim(" ".join(_split_fields(cron)), datetime(2000, 1, 1, tzinfo=UTC)).explain()
    # cronsim counts: the 20th, the 21th.
    text = re.sub(r"([2-5])([123])th", lambda each: f"{each[1]}{_ORDINALS[each[2]]}", text)
    return text[0].lower() + text[1:]


def slots_after(schedule: Schedule, after: float) -> Iterator[float]:
    """The slots that follow this time, in order, each once; of an interval without end."""
    if schedule.at_once and after < schedule.starts_at:
        after = schedule.starts_at
        yield after
    if schedule.at is not None:
        if schedule.at > after:
            yield schedule.at
    elif schedule.every is not None:
        yield from _intervals(schedule.starts_at, schedule.every, after)
    elif schedule.cron is not None:
        yield from _cron(schedule.cron, schedule.zone, after)


def _intervals(starts_at: float, every: float, after: float) -> Iterator[float]:
    number = max(1, math.floor((after - starts_at) / every))
    while True:
        slot = starts_at + number * every
        if slot > after:
            yield slot
        number += 1


def _cron(cron: str, zone: str, after: float) -> Iterator[float]:
    fields = _fields(cron)
    start = datetime.fromtimestamp(after, zone_named(zone))
    last = after
    for moment in CronSim(fields, start):
        slot = moment.timestamp()
        # Two slots in the hour that daylight saving skips become one, and a start within the hour
        # that it repeats would yield slots that were due the first time.
        if slot > last:
            last = slot
            yield slot


class Plan(msgspec.Struct, frozen=True):
    """What to decide now; `more`: there are further slots, for another plan."""

    decisions: Sequence[Decision]
    more: bool = False


def plan(schedule: Schedule, now: float, *, unended: bool = False) -> Plan:
    """What becomes of the slots that are due; `unended`: the last job has not ended."""
    following = slots_after(schedule, schedule.decided_until)
    slots = list(islice(takewhile(lambda slot: slot <= now, following), MOST_SLOTS + 1))
    more = len(slots) > MOST_SLOTS
    if more:
        slots.pop()
    if schedule.paused:
        return Plan(_runs(schedule, now, slots, {}, "skipped: paused"), more)
    run_slots = _not_missed(schedule, slots, now, more=more)
    if len(run_slots) > MOST_JOBS:
        run_slots, more = run_slots[:MOST_JOBS], True
        slots = slots[: slots.index(run_slots[-1]) + 1]
    decision_by_slot: dict[float, str] = {}
    if run_slots and schedule.overlap == "skip":
        decision_by_slot = dict.fromkeys(run_slots, "skipped: overlap")
        run_slots = run_slots[:0] if unended else run_slots[:1]
    elif run_slots and schedule.overlap == "cancel":
        decision_by_slot = dict.fromkeys(run_slots, "skipped: overlap")
        run_slots = run_slots[-1:]
    replaces = schedule.overlap == "cancel" and unended
    decision_by_slot |= dict.fromkeys(
        run_slots, "enqueued: cancelled old" if replaces else "enqueued"
    )
    return Plan(_runs(schedule, now, slots, decision_by_slot, "skipped: missed"), more)


def _not_missed(
    schedule: Schedule, slots: Sequence[float], now: float, *, more: bool
) -> Sequence[float]:
    """The slots that are run, late or not."""
    defaults = {"one": math.inf, "skip": ON_TIME_SECONDS, "all": ALL_WINDOW_SECONDS}
    window = defaults[schedule.missed] if schedule.window is None else schedule.window
    # The last one stands for those before it; while there are more, none of these is the last.
    candidates = slots if schedule.missed == "all" else slots[len(slots) if more else -1 :]
    return [slot for slot in candidates if now - slot <= window]


def _runs(
    schedule: Schedule,
    now: float,
    slots: Sequence[float],
    decision_by_slot: Mapping[float, str],
    otherwise: str,
) -> list[Decision]:
    """A decision for each slot that makes a job, and one for each run of others alike."""
    decisions: list[Decision] = []
    for slot in slots:
        says = decision_by_slot.get(slot, otherwise)
        if says.startswith("enqueued"):
            cancels = schedule.last_job if says == "enqueued: cancelled old" else None
            job = job_for(schedule, slot, now)
            decisions.append(
                Decision(says=says, slot=slot, first=slot, slots=1, job=job, cancels=cancels)
            )
        elif decisions and decisions[-1].says == says:
            before = decisions[-1]
            decisions[-1] = msgspec.structs.replace(before, slot=slot, slots=before.slots + 1)
        else:
            decisions.append(Decision(says=says, slot=slot, first=slot, slots=1))
    return decisions


def job_for(schedule: Schedule, slot: float, now: float, id: str | None = None) -> Job[Any]:
    """The job of a slot: its id is derived from schedule and slot, so that there can be but one."""
    job = schedule.job
    body, search = job.body, dict(job.search)
    if schedule.takes_slot:
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        arguments = msgspec.json.decode(parts["args"], type=dict[str, Any])
        arguments["slot"] = schedule.moment(slot).isoformat()
        body = msgspec.json.encode({**parts, "args": arguments})
        if "slot" in search:
            search["slot"] = argument_text(arguments, "slot") or ""
    return msgspec.structs.replace(
        job,
        id=id or slot_id(schedule.name, slot, bucket_text(schedule)),
        body=body,
        search=search,
        tags={**job.tags, _TAG: schedule.name},
        run_at=slot,
        enqueued_at=now,
        expires_at=None if schedule.expires is None else now + schedule.expires,
    )


def bucket_text(schedule: Schedule) -> str:
    """What decides the bucket of its jobs."""
    job = schedule.job
    text = job.key if job.unique is None else job.unique.key
    return schedule.name if text is None else text


def slot_id(name: str, slot: float, bucket: str | None = None) -> str:
    """The id of the job of a slot; `bucket` is the text that decides its bucket, None: the name."""
    return derived_id("schedule", name, f"{slot:.6f}", bucket=name if bucket is None else bucket)


def replaced(before: Schedule | None, given: Schedule, now: float) -> Schedule:
    """What is stored when `given` is put; `before` itself if that changes nothing.

    One that is new, and one whose times have changed, begins now. What is paused stays so.
    """
    if before is None:
        return msgspec.structs.replace(
            given,
            **_without_history(paused=given.paused),
            created_at=now,
            starts_at=now,
            decided_until=now - 1 if given.at_once else now,
            revision=1,
        )
    if _declared(given) == _declared(before):
        return before
    kept = {
        name: getattr(before, name)
        for name in ("paused", "created_at", "starts_at", "decided_until", "last", "last_job")
    }
    if _times(given) != _times(before):
        kept["starts_at"] = now
        kept["decided_until"] = max(now, before.decided_until)
    return msgspec.structs.replace(given, **kept, revision=before.revision + 1)


def _times(schedule: Schedule) -> tuple[Any, ...]:
    return (schedule.cron, schedule.zone, schedule.every, schedule.at)


def _declared(schedule: Schedule) -> Schedule:
    """What its caller said, and nothing that the store added."""
    blank = {"created_at": 0.0, "starts_at": 0.0, "decided_until": 0.0, "revision": 0, "put_by": ""}
    return msgspec.structs.replace(schedule, **_without_history(paused=False), **blank)


def _without_history(*, paused: bool) -> dict[str, Any]:
    return {"paused": paused, "last": None, "last_job": None}


def holds(stored: Schedule, read: Schedule) -> bool:
    """Whether nobody has changed or decided anything since the schedule was read."""
    return (stored.created_at, stored.revision) == (read.created_at, read.revision)


def decided(schedule: Schedule, decisions: Sequence[Decision], now: float) -> Schedule:
    """The schedule after these decisions."""
    changed: dict[str, Any] = {"revision": schedule.revision + 1}
    until = schedule.decided_until
    for decision in decisions:
        if decision.says in ("paused", "resumed"):
            changed["paused"] = decision.says == "paused"
        if decision.slots:
            until = max(until, decision.slot)
            changed["last"] = Last(decision.says, decision.slot, now)
            if decision.job is not None:
                changed["last_job"] = decision.job.id
    return msgspec.structs.replace(schedule, **changed, decided_until=until)


def event_data(name: str, decision: Decision, now: float) -> dict[str, Any]:
    """What the history says of a decision; times in UTC, for people and programs alike."""
    data: dict[str, Any] = {"schedule": name, "says": decision.says}
    if decision.slot:
        data["slot"] = _text(decision.slot)
        data["late"] = round(max(0.0, now - decision.slot), 3)
    if decision.slots > 1:
        data |= {"first": _text(decision.first), "slots": decision.slots}
    if decision.cancels is not None:
        data["cancels"] = decision.cancels
    if decision.author or decision.reason:
        data |= {"author": decision.author, "reason": decision.reason}
    return data


def _text(slot: float) -> str:
    return datetime.fromtimestamp(slot, UTC).isoformat().replace("+00:00", "Z")
