"""A rule as people give it: in words on the command line, in JSON over REST, in a form on a page.

Whatever the surface, the same fields make the same rule, and a mistake gets the same sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypedDict, Unpack

from penstock.broker.checks import MOST_VERSION
from penstock.errors import Refused
from penstock.operate.typed_values import moment_of, number_of, pair_of, span_of
from penstock.operate.why import ago
from penstock.rules.rule import POLICIES, Rule, RuleKind, parse_rate

# The operation that takes a rule of this kind back; one that sets it is called like the kind.
OFF = {
    RuleKind.PAUSE: "resume",
    RuleKind.BLOCK: "unblock",
    RuleKind.LIMIT: "limit_off",
    RuleKind.ORDER: "order_off",
}
_LONGEST = 10 * 365 * 86400.0
_MOST_RUNNING = 2**31 - 1


class RuleFields(TypedDict, total=False):
    """What a rule is about, and what it says; None, as what is left out, is not named."""

    queue: str | None
    task: str | None
    version: int | str | None
    tag: str | Mapping[str, str] | None  # NAME=VALUE, or one name with its value
    key: str | None
    running: int | str | None
    rate: str | None
    per_key: bool
    policy: str | None
    for_: float | str | None  # seconds, or a stretch of time
    until: str | None
    reason: str


def rule_of(kind: RuleKind, now: float, **fields: Unpack[RuleFields]) -> Rule:
    """The rule that is to be set."""
    _check_named(kind, kind, fields)
    running, rate = fields.get("running"), fields.get("rate")
    policy = fields.get("policy")
    if kind is RuleKind.ORDER and policy is None:
        raise Refused(f"order how? Give a policy ({', '.join(POLICIES)}), or off")
    return Rule(
        kind,
        fields.get("queue"),
        fields.get("task"),
        reason=fields.get("reason", ""),
        until=_ends_at(fields.get("for_"), fields.get("until"), now),
        version=_version(fields),
        tag=_tag(fields.get("tag")),
        key=fields.get("key"),
        running=None if running is None else number_of(running, "running", 0, _MOST_RUNNING),
        rate=None if rate is None else parse_rate(rate),
        per_key=fields.get("per_key", False),
        policy=policy,
    )


def rule_off(kind: RuleKind, **fields: Unpack[RuleFields]) -> Rule:
    """A rule that is to be taken back: at the place that these fields name, whatever it says."""
    _check_named(OFF[kind].partition("_")[0], kind, fields)
    for said in ("running", "rate", "policy"):
        if fields.get(said) is not None:
            named = "running and rate" if kind is RuleKind.LIMIT else fields.get(said)
            raise Refused(f"off takes the {kind} back: leave out {named}")
    return Rule(
        kind,
        fields.get("queue"),
        fields.get("task"),
        reason=fields.get("reason", ""),
        version=_version(fields),
        tag=_tag(fields.get("tag")),
        key=fields.get("key"),
        per_key=fields.get("per_key", False),
        # What it says is no part of its place, but a limit and an order must say something.
        running=1 if kind is RuleKind.LIMIT else None,
        policy=POLICIES[0] if kind is RuleKind.ORDER else None,
    )


def _check_named(verb: str, kind: RuleKind, fields: RuleFields) -> None:
    given = [fields.get(name) for name in ("queue", "task", "version", "tag", "key")]
    if all(each is None or each in ("", {}) for each in given):
        which = "a queue, a task, a version, a tag or a key"
        if kind is RuleKind.LIMIT:
            which = "a queue, a task or both"
        raise Refused(f"{verb} what? Name {which}")


def _version(fields: RuleFields) -> int | None:
    version = fields.get("version")
    return None if version is None else number_of(version, "version", 0, MOST_VERSION)


def _tag(given: str | Mapping[str, str] | None) -> tuple[str, str] | None:
    if given is None or isinstance(given, str):
        return None if given is None else pair_of(given, "tag")
    if len(given) != 1:
        raise Refused('tag: one tag with its value, as {"tenant": "a"}')
    [pair] = given.items()
    return pair


def _ends_at(lasts: float | str | None, until: str | None, now: float) -> float | None:
    """When it ends by itself."""
    if until is not None and lasts is not None:
        raise Refused("until and for both say when it ends: give one of them")
    if until is not None:
        at = moment_of(until, "until").timestamp()
        if at <= now:
            raise Refused(f"until {until}: that was {ago(at, now)}")
        return at
    if lasts is None:
        return None
    seconds = span_of(lasts, "for") if isinstance(lasts, str) else lasts
    if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST:
        raise Refused(f"for {lasts!r}: more than 0 seconds, and ten years at most")
    return now + seconds
