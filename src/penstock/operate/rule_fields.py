"""Rules from input: options of a command, JSON over REST, or the fields of a form.

The same fields make the same rule, and a mistake gets the same sentence, on every surface.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypedDict, Unpack

from penstock.broker.checks import MOST_VERSION
from penstock.errors import Refused
from penstock.operate.parse_input import parse_datetime, parse_duration, parse_integer, parse_pair
from penstock.operate.time_text import relative_time
from penstock.rules.limits import parse_rate
from penstock.rules.rule import POLICIES, Rule, RuleKind, check_rule

# The operation that removes a rule of this kind; the one that sets it has the kind's name.
CLEAR_OPERATIONS = {
    RuleKind.PAUSE: "resume",
    RuleKind.BLOCK: "unblock",
    RuleKind.LIMIT: "limit_off",
    RuleKind.ORDER: "order_off",
}
_LONGEST = 10 * 365 * 86400.0
_MOST_RUNNING = 2**31 - 1


class RuleFields(TypedDict, total=False):
    """The target of a rule and its values; None means the same as a missing field."""

    queue: str | None
    task: str | None
    version: int | str | None
    tag: str | Mapping[str, str] | None  # NAME=VALUE, or one name with its value
    key: str | None
    all_: bool  # everything: no other target
    running: int | str | None
    rate: str | None
    per_key: bool
    policy: str | None
    for_: float | str | None  # seconds, or a text such as 2h
    until: str | None
    reason: str


def parse_rule(kind: RuleKind, now: float, **fields: Unpack[RuleFields]) -> Rule:
    """The rule to set."""
    _check_named(kind, kind, fields)
    running, rate = fields.get("running"), fields.get("rate")
    policy = fields.get("policy")
    if kind is RuleKind.ORDER and policy is None:
        raise Refused(f"order needs a policy ({', '.join(POLICIES)}), or off")
    rule = Rule(
        kind,
        fields.get("queue"),
        fields.get("task"),
        reason=fields.get("reason", ""),
        until=_ends_at(fields.get("for_"), fields.get("until"), now),
        version=_version(fields),
        tag=_tag(fields.get("tag")),
        key=fields.get("key"),
        running=None if running is None else parse_integer(running, "running", 0, _MOST_RUNNING),
        rate=None if rate is None else parse_rate(rate),
        per_key=fields.get("per_key", False),
        policy=policy,
    )
    check_rule(rule)
    return rule


def parse_rule_to_clear(kind: RuleKind, **fields: Unpack[RuleFields]) -> Rule:
    """A rule to remove: only its kind and its target matter."""
    _check_named(CLEAR_OPERATIONS[kind].partition("_")[0], kind, fields)
    for name in ("running", "rate", "policy"):
        if fields.get(name) is not None:
            surplus = "running and rate" if kind is RuleKind.LIMIT else fields.get(name)
            raise Refused(f"off removes the {kind}: leave out {surplus}")
    return Rule(
        kind,
        fields.get("queue"),
        fields.get("task"),
        reason=fields.get("reason", ""),
        version=_version(fields),
        tag=_tag(fields.get("tag")),
        key=fields.get("key"),
        per_key=fields.get("per_key", False),
        # Not a part of the target, but a limit and an order need some value to be valid.
        running=1 if kind is RuleKind.LIMIT else None,
        policy=POLICIES[0] if kind is RuleKind.ORDER else None,
    )


def undo_command(rule: Rule, program: str = "penstock") -> str:
    """The command that removes the rule."""
    if rule.freezes:
        return f"{program} freeze --off"
    command, _, off = CLEAR_OPERATIONS[rule.kind].partition("_")
    flag = ["--off"] if off else ["--admin"] if rule.kind is RuleKind.BLOCK else []
    return " ".join([program, command, *rule.words, *flag])


def _check_named(verb: str, kind: RuleKind, fields: RuleFields) -> None:
    given = [fields.get(name) for name in ("queue", "task", "version", "tag", "key")]
    if fields.get("all_"):
        if kind not in {RuleKind.PAUSE, RuleKind.BLOCK}:
            raise Refused(f"{verb} everything? Only a pause and a block can be of everything")
        if any(value not in (None, "", {}) for value in given):
            raise Refused(f"{verb} everything: name nothing else")
        return
    if all(value is None or value in ("", {}) for value in given):
        which = "a queue, a task, a version, a tag or a key"
        if kind is RuleKind.LIMIT:
            which = "a queue, a task or both"
        raise Refused(f"{verb} what? Name {which}")


def _version(fields: RuleFields) -> int | None:
    version = fields.get("version")
    return None if version is None else parse_integer(version, "version", 0, MOST_VERSION)


def _tag(given: str | Mapping[str, str] | None) -> tuple[str, str] | None:
    if given is None or isinstance(given, str):
        return None if given is None else parse_pair(given, "tag")
    if len(given) != 1:
        raise Refused('tag takes one tag with its value, such as {"tenant": "a"}')
    [pair] = given.items()
    return pair


def _ends_at(lasts: float | str | None, until: str | None, now: float) -> float | None:
    """When the rule ends by itself."""
    if until is not None and lasts is not None:
        raise Refused("until and for both set the end: give one of them")
    if until is not None:
        at = parse_datetime(until, "until").timestamp()
        if at <= now:
            raise Refused(f"until {until} is in the past ({relative_time(at, now)})")
        return at
    if lasts is None:
        return None
    seconds = parse_duration(lasts, "for") if isinstance(lasts, str) else lasts
    if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST:
        raise Refused(f"for {lasts!r} must be more than 0 seconds and at most ten years")
    return now + seconds
