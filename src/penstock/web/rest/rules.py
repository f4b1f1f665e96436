"""Rules and schedules over REST: pause, resume, block, unblock, limit; schedules by name."""

from __future__ import annotations

import math

import msgspec

from penstock.as_json import RuleJson, rule_json
from penstock.errors import Refused
from penstock.rule import Rule, RuleKind, parse_rate
from penstock.schedule_look import ScheduleJson, schedule_json
from penstock.web.asked import Asked, NotFound

MOST_SLOTS = 100
LONGEST = 10 * 365 * 86400.0


class About(msgspec.Struct, forbid_unknown_fields=True):
    """What a pause or a block is about: jobs that fit all that is named."""

    queue: str | None = None
    task: str | None = None
    version: int | None = None
    tag: dict[str, str] | None = None  # one tag, with its value
    key: str | None = None
    seconds: float | None = None  # it ends by itself then
    reason: str = ""


class Limit(msgspec.Struct, forbid_unknown_fields=True):
    """At most so many running, and so many starts (`rate`: 10/s, 100/min); off takes it back."""

    queue: str | None = None
    task: str | None = None
    running: int | None = None
    rate: str | None = None
    per_key: bool = False
    seconds: float | None = None
    off: bool = False
    reason: str = ""


class Set(msgspec.Struct):
    """The rule as it is in force now."""

    rule: RuleJson


class Cleared(msgspec.Struct):
    """Whether there was such a rule."""

    cleared: bool


class Limited(msgspec.Struct):
    """The limit as it is in force now; null: taken back."""

    rule: RuleJson | None
    cleared: bool


class Named(msgspec.Struct, forbid_unknown_fields=True):
    """A schedule by its name."""

    name: str
    reason: str = ""


class Schedules(msgspec.Struct):
    """Every schedule."""

    schedules: list[ScheduleJson]


class RunNow(msgspec.Struct):
    """The job that was enqueued."""

    job: str


class Removed(msgspec.Struct):
    """Whether there was such a schedule."""

    removed: bool


def pause(asked: Asked) -> Set:
    return Set(rule_json(asked.verbs.pause(_about(asked, RuleKind.PAUSE))))


def resume(asked: Asked) -> Cleared:
    return Cleared(asked.verbs.resume(_about(asked, RuleKind.PAUSE)))


def block(asked: Asked) -> Set:
    return Set(rule_json(asked.verbs.block(_about(asked, RuleKind.BLOCK))))


def unblock(asked: Asked) -> Cleared:
    return Cleared(asked.verbs.unblock(_about(asked, RuleKind.BLOCK)))


def limit(asked: Asked) -> Limited:
    given = asked.json(Limit)
    if given.off:
        if given.running is not None or given.rate is not None:
            raise Refused("off takes the limit back: leave out running and rate")
        standing = Rule(RuleKind.LIMIT, given.queue, given.task, running=1, per_key=given.per_key)
        return Limited(None, asked.verbs.limit_off(standing))
    rule = Rule(
        RuleKind.LIMIT,
        given.queue,
        given.task,
        reason=given.reason,
        until=_until(given.seconds, asked.verbs.now),
        running=given.running,
        rate=None if given.rate is None else parse_rate(given.rate),
        per_key=given.per_key,
    )
    return Limited(rule_json(asked.verbs.limit(rule)), cleared=False)


def _about(asked: Asked, kind: RuleKind) -> Rule:
    given = asked.json(About)
    tag = None
    if given.tag is not None:
        if len(given.tag) != 1:
            raise Refused('tag: one tag with its value, as {"tenant": "a"}')
        [tag] = given.tag.items()
    if given.version is not None and not 0 <= given.version < 2**31:
        raise Refused(f"version {given.version}: it goes from 0 to {2**31 - 1}")
    return Rule(
        kind,
        given.queue,
        given.task,
        reason=given.reason,
        until=_until(given.seconds, asked.verbs.now),
        version=given.version,
        tag=tag,
        key=given.key,
    )


def _until(seconds: float | None, now: float) -> float | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds) or not 0 < seconds <= LONGEST:
        raise Refused(f"seconds={seconds!r}: more than 0, and ten years at most")
    return now + seconds


def schedules(asked: Asked) -> Schedules:
    count, now = asked.number("next", 1, 0, MOST_SLOTS), asked.verbs.now
    name = asked.word("name")
    found = [each for each in asked.verbs.schedules() if not name or each.name == name]
    if name and not found:
        raise NotFound(f"there is no schedule {name[:200]!r}")
    return Schedules([schedule_json(each, now, count) for each in found])


def pause_schedule(asked: Asked) -> ScheduleJson:
    given = asked.json(Named)
    made = asked.verbs.pause_schedule(given.name, given.reason)
    return schedule_json(made, asked.verbs.now, 1)


def resume_schedule(asked: Asked) -> ScheduleJson:
    given = asked.json(Named)
    made = asked.verbs.resume_schedule(given.name, given.reason)
    return schedule_json(made, asked.verbs.now, 1)


def run_schedule(asked: Asked) -> RunNow:
    given = asked.json(Named)
    return RunNow(asked.verbs.run_schedule(given.name, given.reason))


def remove_schedule(asked: Asked) -> Removed:
    return Removed(asked.verbs.remove_schedule(asked.json(Named).name))
