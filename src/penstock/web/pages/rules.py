"""The pages of rules: the list, and the form that sets one.

Setting takes two steps: a GET counts the jobs that the rule would hold back, and the form below
that number sets it (POST).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.refusals import Conflict
from penstock.operate.rule_fields import RuleFields, parse_rule, parse_rule_to_clear
from penstock.operate.sentences import rule_not_set_text
from penstock.rules.rule import POLICIES, Rule, RuleKind
from penstock.web.checked_store import MOST_COUNTED
from penstock.web.request import WebRequest

PAGE = 100
FIELDS = (
    *("kind", "queue", "task", "version", "tag", "key"),
    *("running", "rate", "per_key", "policy", "for", "reason"),
)
LASTS = (
    *(("", "until it is removed"), ("900", "15 minutes"), ("3600", "an hour")),
    *(("14400", "4 hours"), ("86400", "a day"), ("604800", "a week")),
)


def show(request: WebRequest) -> Response:
    store, word = request.store, request.word("q").strip()
    wanted = word.casefold()
    found = [
        rule
        for rule in store.rules()
        if wanted in f"{rule.kind} {rule.target} {rule.author} {rule.reason}".casefold()
    ]
    found.sort(key=lambda rule: -rule.created_at)
    pager = request.pager("/rules", PAGE, len(found), q=word or None)
    return request.page(
        "rules.html",
        title="Rules",
        cli="penstock pause QUEUE --dry-run",
        q=word,
        rules=found[pager["first"] :][:PAGE],
        all_rules=len(found),
        **pager,
    )


def form(request: WebRequest) -> Response:
    """The form, with the number of jobs that the rule would hold back; changes nothing."""
    given = {name: request.word(name) for name in FIELDS}
    kind = _kind(given["kind"] or "pause")
    rule, count, mistake = None, None, ""
    if _is_complete(given, kind):
        try:
            rule = parse_rule(kind, request.store.now, **_fields(given, kind))
            count = request.store.matching(rule)
        except Refused as error:
            mistake = str(error)
    return request.page(
        "rule.html",
        422 if mistake else 200,
        title="Set a rule",
        cli=_command(rule, kind, given),
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


def set_action(kind: RuleKind) -> Callable[[WebRequest], Response]:
    """Set a rule of this kind."""

    def act(request: WebRequest) -> Response:
        rule = request.store.set_rule(
            parse_rule(kind, request.store.now, **_fields(request.form(), kind))
        )
        return _show_rule(request, rule)

    return act


def clear_action(kind: RuleKind) -> Callable[[WebRequest], Response]:
    """Remove a rule of this kind."""

    def act(request: WebRequest) -> Response:
        given = {**request.form(), **dict.fromkeys(("running", "rate", "policy", "for"), "")}
        rule = parse_rule_to_clear(kind, **_fields(given, kind))
        if not request.store.clear_rule(rule):
            raise Conflict(rule_not_set_text(rule))
        return _show_rule(request, rule)

    return act


def _show_rule(request: WebRequest, rule: Rule) -> Response:
    return request.go("/queues/one", name=rule.queue) if rule.queue else request.go("/rules")


def _is_complete(given: Mapping[str, str], kind: RuleKind) -> bool:
    """Whether there is something to count; an empty form is not a mistake."""
    numbers = {RuleKind.LIMIT: ("running", "rate"), RuleKind.ORDER: ("policy",)}.get(kind)
    return any(given[name] for name in ("queue", "task", "version", "tag", "key")) and (
        numbers is None or any(given[name] for name in numbers)
    )


def _kind(text: str) -> RuleKind:
    if text not in set(RuleKind):
        raise Refused(
            f"kind {text[:40]!r} does not exist; the kinds of rules are {', '.join(RuleKind)}"
        )
    return RuleKind(text)


def _fields(given: Mapping[str, str], kind: RuleKind) -> RuleFields:
    """The fields of a form that a rule of this kind has; empty ones are None."""

    def field(name: str) -> str | None:
        return given.get(name, "") or None

    fields: RuleFields = {"queue": field("queue"), "reason": given.get("reason", "")}
    if kind is RuleKind.ORDER:
        return {**fields, "policy": field("policy")}
    fields = {**fields, "task": field("task"), "for_": field("for")}
    if kind is RuleKind.LIMIT:
        limits: RuleFields = {"running": field("running"), "rate": field("rate")}
        return {**fields, **limits, "per_key": bool(field("per_key"))}
    fields = {**fields, "version": field("version"), "tag": field("tag"), "key": field("key")}
    return {**fields, "all_": bool(field("all"))}


def _command(rule: Rule | None, kind: RuleKind, given: Mapping[str, str]) -> str:
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
