"""Rules: those in force, with who set them and why; and setting one, counted before it is set.

Setting is two steps: a look (GET) says how many jobs it would hold back, and the form below that
number sets it (POST).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from penstock.broker.checks import MOST_VERSION
from penstock.errors import Refused
from penstock.rules.rule import POLICIES, Rule, RuleKind, parse_rate
from penstock.web.request import Asked, Conflict
from penstock.web.verbs import MOST_COUNTED

PAGE = 100
FARTHEST = 1_000_000
FIELDS = (
    *("kind", "queue", "task", "version", "tag", "key"),
    *("running", "rate", "per_key", "policy", "for", "reason"),
)
LASTS = (
    *(("", "until it is taken back"), ("900", "15 minutes"), ("3600", "an hour")),
    *(("14400", "4 hours"), ("86400", "a day"), ("604800", "a week")),
)
OFF = {
    RuleKind.PAUSE: "resume",
    RuleKind.BLOCK: "unblock",
    RuleKind.LIMIT: "limit-off",
    RuleKind.ORDER: "order-off",
}
_LONGEST = 10 * 365 * 86400
_MOST_RUNNING = 10**9


def show(asked: Asked) -> Response:
    verbs, word = asked.verbs, asked.word("q").strip()
    page = asked.number("page", 1, 1, FARTHEST)
    wanted = word.casefold()
    found = [
        rule
        for rule in verbs.rules()
        if wanted in f"{rule.kind} {rule.target} {rule.author} {rule.reason}".casefold()
    ]
    found.sort(key=lambda rule: -rule.created_at)
    first = (page - 1) * PAGE
    return asked.page(
        "rules.html",
        title="Rules",
        cli="penstock pause QUEUE --dry-run",
        q=word,
        rules=found[first : first + PAGE],
        all_rules=len(found),
        first=first,
        before=asked.link("/rules", q=word or None, page=page - 1) if page > 1 else None,
        after=asked.link("/rules", q=word or None, page=page + 1)
        if first + PAGE < len(found)
        else None,
    )


def form(asked: Asked) -> Response:
    """What is to be set, and how many jobs it would hold back: nothing is changed here."""
    given = {name: asked.word(name) for name in FIELDS}
    kind = _kind(given["kind"] or "pause")
    rule, count, mistake = None, None, ""
    if _said_enough(given, kind):
        try:
            rule = _rule(given, kind, asked.verbs.now)
            count = asked.verbs.fitting(rule)
        except Refused as error:
            mistake = str(error)
    return asked.page(
        "rule.html",
        422 if mistake else 200,
        title="Set a rule",
        cli=_typed(rule, kind, given),
        kind=kind,
        kinds=list(RuleKind),
        policies=POLICIES,
        lasts=LASTS,
        given=given,
        rule=rule,
        count=count,
        most=MOST_COUNTED,
        mistake=mistake,
    )


def pause(asked: Asked) -> Response:
    return _set(asked, RuleKind.PAUSE, asked.verbs.pause)


def block(asked: Asked) -> Response:
    return _set(asked, RuleKind.BLOCK, asked.verbs.block)


def limit(asked: Asked) -> Response:
    return _set(asked, RuleKind.LIMIT, asked.verbs.limit)


def order(asked: Asked) -> Response:
    return _set(asked, RuleKind.ORDER, asked.verbs.order)


def resume(asked: Asked) -> Response:
    return _clear(asked, RuleKind.PAUSE, asked.verbs.resume)


def unblock(asked: Asked) -> Response:
    return _clear(asked, RuleKind.BLOCK, asked.verbs.unblock)


def limit_off(asked: Asked) -> Response:
    return _clear(asked, RuleKind.LIMIT, asked.verbs.limit_off)


def order_off(asked: Asked) -> Response:
    return _clear(asked, RuleKind.ORDER, asked.verbs.order_off)


def _set(asked: Asked, kind: RuleKind, verb: Callable[[Rule], Rule]) -> Response:
    rule = verb(_rule(asked.form(), kind, asked.verbs.now))
    return asked.go("/queues/one", name=rule.queue) if rule.queue else asked.go("/rules")


def _clear(asked: Asked, kind: RuleKind, verb: Callable[[Rule], bool]) -> Response:
    standing: dict[str, Any] = {}
    if kind is RuleKind.LIMIT:
        standing = {"running": "1", "rate": ""}
    elif kind is RuleKind.ORDER:
        standing = {"policy": "fair"}
    rule = _rule({**asked.form(), **standing, "for": ""}, kind, asked.verbs.now)
    if not verb(rule):
        raise Conflict(f"There was no {kind} of {rule.target}: somebody has taken it back.")
    return asked.go("/queues/one", name=rule.queue) if rule.queue else asked.go("/rules")


def _said_enough(given: Mapping[str, str], kind: RuleKind) -> bool:
    """Whether there is something to count; who has just opened the form made no mistake yet."""
    numbers = {RuleKind.LIMIT: ("running", "rate"), RuleKind.ORDER: ("policy",)}.get(kind)
    return any(given[name] for name in ("queue", "task", "version", "tag", "key")) and (
        numbers is None or any(given[name] for name in numbers)
    )


def _kind(text: str) -> RuleKind:
    if text not in set(RuleKind):
        raise Refused(f"a rule {text[:40]!r}: there are {', '.join(RuleKind)}")
    return RuleKind(text)


def _rule(given: Mapping[str, str], kind: RuleKind, now: float) -> Rule:
    """The rule that a form means; what was left empty is not named."""

    def said(name: str) -> str | None:
        return given.get(name, "") or None

    limits = kind is RuleKind.LIMIT
    holds = kind in {RuleKind.PAUSE, RuleKind.BLOCK}
    rate = said("rate") if limits else None
    return Rule(
        kind,
        said("queue"),
        said("task") if kind is not RuleKind.ORDER else None,
        reason=given.get("reason", ""),
        until=None if kind is RuleKind.ORDER else _until(said("for"), now),
        version=_number("version", said("version"), MOST_VERSION) if holds else None,
        tag=_tag(said("tag")) if holds else None,
        key=said("key") if holds else None,
        running=_number("running", said("running"), _MOST_RUNNING) if limits else None,
        rate=None if rate is None else parse_rate(rate),
        per_key=limits and bool(said("per_key")),
        policy=said("policy") if kind is RuleKind.ORDER else None,
    )


def _number(name: str, text: str | None, most: int) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > most:
        raise Refused(f"{name} {text[:40]!r}: a whole number, {most:,} at most")
    return int(text)


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Refused(f"tag {text[:200]!r}: write NAME=VALUE")
    return name, value


def _until(text: str | None, now: float) -> float | None:
    seconds = _number("for", text, _LONGEST)
    return None if not seconds else now + seconds


def _typed(rule: Rule | None, kind: RuleKind, given: Mapping[str, str]) -> str:
    """The same on the command line."""
    if rule is None:
        return f"penstock {kind} --help"
    words = ["penstock", str(kind), *rule.words]
    words += [] if rule.policy is None else [rule.policy]
    words += [] if rule.running is None else ["--running", str(rule.running)]
    words += [] if rule.rate is None else ["--rate", given["rate"]]
    words += ["--for", f"{given['for']}s"] if rule.until is not None else []
    words += ["--reason", rule.reason] if rule.reason else []
    words += ["--admin"] if kind is RuleKind.BLOCK else []
    return shlex.join(words)
