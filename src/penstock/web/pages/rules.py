"""Rules: those in force, with who set them and why; and setting one, counted before it is set.

Setting is two steps: a look (GET) says how many jobs it would hold back, and the form below that
number sets it (POST).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.refusals import Conflict
from penstock.operate.rule_fields import RuleFields, rule_of, rule_off
from penstock.operate.sentences import was_not_set
from penstock.rules.rule import POLICIES, Rule, RuleKind
from penstock.web.request import Asked
from penstock.web.verbs import MOST_COUNTED

PAGE = 100
FIELDS = (
    *("kind", "queue", "task", "version", "tag", "key"),
    *("running", "rate", "per_key", "policy", "for", "reason"),
)
LASTS = (
    *(("", "until it is taken back"), ("900", "15 minutes"), ("3600", "an hour")),
    *(("14400", "4 hours"), ("86400", "a day"), ("604800", "a week")),
)


def show(asked: Asked) -> Response:
    verbs, word = asked.verbs, asked.word("q").strip()
    wanted = word.casefold()
    found = [
        rule
        for rule in verbs.rules()
        if wanted in f"{rule.kind} {rule.target} {rule.author} {rule.reason}".casefold()
    ]
    found.sort(key=lambda rule: -rule.created_at)
    pager = asked.pager("/rules", PAGE, len(found), q=word or None)
    return asked.page(
        "rules.html",
        title="Rules",
        cli="penstock pause QUEUE --dry-run",
        q=word,
        rules=found[pager["first"] :][:PAGE],
        all_rules=len(found),
        **pager,
    )


def form(asked: Asked) -> Response:
    """What is to be set, and how many jobs it would hold back: nothing is changed here."""
    given = {name: asked.word(name) for name in FIELDS}
    kind = _kind(given["kind"] or "pause")
    rule, count, mistake = None, None, ""
    if _said_enough(given, kind):
        try:
            rule = rule_of(kind, asked.verbs.now, **_fields(given, kind))
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


def setting(kind: RuleKind) -> Callable[[Asked], Response]:
    """Set a rule of this kind."""

    def act(asked: Asked) -> Response:
        rule = asked.verbs.set_rule(rule_of(kind, asked.verbs.now, **_fields(asked.form(), kind)))
        return _where(asked, rule)

    return act


def clearing(kind: RuleKind) -> Callable[[Asked], Response]:
    """Take a rule of this kind back."""

    def act(asked: Asked) -> Response:
        given = {**asked.form(), **dict.fromkeys(("running", "rate", "policy", "for"), "")}
        rule = rule_off(kind, **_fields(given, kind))
        if not asked.verbs.clear_rule(rule):
            raise Conflict(was_not_set(rule))
        return _where(asked, rule)

    return act


def _where(asked: Asked, rule: Rule) -> Response:
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


def _fields(given: Mapping[str, str], kind: RuleKind) -> RuleFields:
    """What a form says of a rule of this kind; what was left empty is not named."""

    def said(name: str) -> str | None:
        return given.get(name, "") or None

    fields: RuleFields = {"queue": said("queue"), "reason": given.get("reason", "")}
    if kind is RuleKind.ORDER:
        return {**fields, "policy": said("policy")}
    fields = {**fields, "task": said("task"), "for_": said("for")}
    if kind is RuleKind.LIMIT:
        limits: RuleFields = {"running": said("running"), "rate": said("rate")}
        return {**fields, **limits, "per_key": bool(said("per_key"))}
    return {**fields, "version": said("version"), "tag": said("tag"), "key": said("key")}


def _typed(rule: Rule | None, kind: RuleKind, given: Mapping[str, str]) -> str:
    """The same on the command line."""
    if rule is None:
        return f"penstock {kind} --help"
    words = ["penstock", str(kind), *rule.words]
    words += [] if rule.policy is None else [rule.policy]
    words += [] if rule.running is None else ["--running", str(rule.running)]
    words += [] if rule.rate is None else ["--rate", given["rate"]]
    unit = "s" if given["for"].isdigit() else ""
    words += ["--for", given["for"] + unit] if rule.until is not None else []
    words += ["--reason", rule.reason] if rule.reason else []
    words += ["--admin"] if kind is RuleKind.BLOCK else []
    return shlex.join(words)
