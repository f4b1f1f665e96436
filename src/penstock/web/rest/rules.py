"""Rules over REST: pause, resume, block, unblock, limit, order."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.operate.rule_fields import rule_of, rule_off
from penstock.operate.to_json import RuleJson, rule_json
from penstock.rules.rule import RuleKind
from penstock.web.request import Asked


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


def holding(kind: RuleKind) -> Callable[[Asked], Set]:
    """Pause or block."""

    def act(asked: Asked) -> Set:
        given = msgspec.structs.asdict(asked.json(About))
        dry_run, lasts = given.pop("dry_run"), given.pop("seconds")
        rule = rule_of(kind, asked.verbs.now, for_=lasts, **given)
        if dry_run:
            return Set(rule_json(rule), asked.verbs.fitting(rule).jobs)
        return Set(rule_json(asked.verbs.set_rule(rule)))

    return act


def lifting(kind: RuleKind) -> Callable[[Asked], Cleared]:
    """Resume or unblock."""

    def act(asked: Asked) -> Cleared:
        given = msgspec.structs.asdict(asked.json(Gone))
        return Cleared(asked.verbs.clear_rule(rule_off(kind, **given)))

    return act


def order(asked: Asked) -> Limited:
    return _set_or_clear(asked, RuleKind.ORDER, asked.json(Order))


def limit(asked: Asked) -> Limited:
    return _set_or_clear(asked, RuleKind.LIMIT, asked.json(Limit))


def _set_or_clear(asked: Asked, kind: RuleKind, body: Order | Limit) -> Limited:
    given = msgspec.structs.asdict(body)
    off, lasts = given.pop("off"), given.pop("seconds", None)
    if off:
        return Limited(None, asked.verbs.clear_rule(rule_off(kind, **given)))
    rule = rule_of(kind, asked.verbs.now, for_=lasts, **given)
    return Limited(rule_json(asked.verbs.set_rule(rule)), cleared=False)
