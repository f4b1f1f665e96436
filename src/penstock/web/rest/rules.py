"""Rules over REST: pause, resume, block, unblock, limit, order."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from penstock.errors import Refused
from penstock.operate.to_json import RuleJson, rule_json
from penstock.rules.rule import Rule, RuleKind, parse_rate
from penstock.web.request import Asked

LONGEST = 10 * 365 * 86400.0


class About(msgspec.Struct, forbid_unknown_fields=True):
    """What a pause or a block is about: jobs that fit all that is named.

    `dry_run` only counts those that it would hold back.
    """

    queue: str | None = None
    task: str | None = None
    version: int | None = None
    tag: dict[str, str] | None = None  # one tag, with its value
    key: str | None = None
    seconds: float | None = None  # it ends by itself then
    reason: str = ""
    dry_run: bool = False


class Gone(msgspec.Struct, forbid_unknown_fields=True):
    """What a pause or a block that is taken back was about: the same words."""

    queue: str | None = None
    task: str | None = None
    version: int | None = None
    tag: dict[str, str] | None = None
    key: str | None = None
    reason: str = ""


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """How a queue is handed out by key: `policy` is wait, skip or fair; off takes it back."""

    queue: str
    policy: str | None = None
    off: bool = False
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
    """The rule as it is in force now; with `dry_run`, as it would be, and how many jobs it fits."""

    rule: RuleJson
    jobs: int | None = None


class Cleared(msgspec.Struct):
    """Whether there was such a rule."""

    cleared: bool


class Limited(msgspec.Struct):
    """The limit, or the order, as it is in force now; null: taken back."""

    rule: RuleJson | None
    cleared: bool


def pause(asked: Asked) -> Set:
    return _set(asked, RuleKind.PAUSE, asked.verbs.pause)


def resume(asked: Asked) -> Cleared:
    return Cleared(asked.verbs.resume(_about(asked.json(Gone), RuleKind.PAUSE)))


def block(asked: Asked) -> Set:
    return _set(asked, RuleKind.BLOCK, asked.verbs.block)


def unblock(asked: Asked) -> Cleared:
    return Cleared(asked.verbs.unblock(_about(asked.json(Gone), RuleKind.BLOCK)))


def _set(asked: Asked, kind: RuleKind, verb: Callable[[Rule], Rule]) -> Set:
    given = asked.json(About)
    until = _until(given.seconds, asked.verbs.now)
    rule = msgspec.structs.replace(_about(given, kind), until=until)
    if given.dry_run:
        return Set(rule_json(rule), asked.verbs.fitting(rule).jobs)
    return Set(rule_json(verb(rule)))


def order(asked: Asked) -> Limited:
    given = asked.json(Order)
    if given.off is (given.policy is not None):
        raise Refused("order how? Give a policy (wait, skip or fair), or off")
    if given.off:
        standing = Rule(RuleKind.ORDER, given.queue, None, reason=given.reason, policy="wait")
        return Limited(None, asked.verbs.order_off(standing))
    rule = Rule(RuleKind.ORDER, given.queue, None, reason=given.reason, policy=given.policy)
    return Limited(rule_json(asked.verbs.order(rule)), cleared=False)


def limit(asked: Asked) -> Limited:
    given = asked.json(Limit)
    if given.off:
        if given.running is not None or given.rate is not None:
            raise Refused("off takes the limit back: leave out running and rate")
        standing = Rule(
            RuleKind.LIMIT,
            given.queue,
            given.task,
            reason=given.reason,
            running=1,
            per_key=given.per_key,
        )
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


def _about(given: About | Gone, kind: RuleKind) -> Rule:
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
