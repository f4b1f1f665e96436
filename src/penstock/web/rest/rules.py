"""Rules over REST: pause, resume, block, unblock, limit, order."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.operate.rule_fields import parse_rule, parse_rule_to_clear
from penstock.operate.to_json import RuleJson, rule_json
from penstock.rules.rule import RuleKind
from penstock.web.request import WebRequest


class HoldRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A pause or a block of the jobs that match all fields.

    `dry_run` only counts the jobs that it would hold back.
    """

    queue: str | None = None
    task: str | None = None
    version: int | None = None
    tag: dict[str, str] | None = None  # one tag, with its value
    key: str | None = None
    all: bool = False  # everything, and no other field; a block of everything freezes the store
    seconds: float | None = None  # it ends by itself after this time
    reason: str = ""
    dry_run: bool = False


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The pause or block to remove: the same fields as it was set with."""

    queue: str | None = None
    task: str | None = None
    version: int | None = None
    tag: dict[str, str] | None = None
    key: str | None = None
    all: bool = False
    reason: str = ""


class OrderRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The order of a queue by key: `policy` is wait, skip, batch or fair; `off` removes it."""

    queue: str
    policy: str | None = None
    off: bool = False
    reason: str = ""


class LimitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The most running jobs, and the most starts (`rate`: 10/s, 100/min); `off` removes it."""

    queue: str | None = None
    task: str | None = None
    running: int | None = None
    rate: str | None = None
    per_key: bool = False
    seconds: float | None = None
    off: bool = False
    reason: str = ""


class RuleAnswer(msgspec.Struct):
    """The rule that was set; with `dry_run` the rule that would be set, and the number of jobs."""

    rule: RuleJson
    jobs: int | None = None


class Cleared(msgspec.Struct):
    """Whether there was such a rule."""

    cleared: bool


class SetOrCleared(msgspec.Struct):
    """The limit or the order that was set; null if it was removed."""

    rule: RuleJson | None
    cleared: bool


def set_action(kind: RuleKind) -> Callable[[WebRequest], RuleAnswer]:
    """Pause or block."""

    def act(request: WebRequest) -> RuleAnswer:
        given = msgspec.structs.asdict(request.json(HoldRequest))
        dry_run, lasts = given.pop("dry_run"), given.pop("seconds")
        given["all_"] = given.pop("all")
        rule = parse_rule(kind, request.store.now, for_=lasts, **given)
        if dry_run:
            return RuleAnswer(rule_json(rule), request.store.matching(rule).jobs)
        return RuleAnswer(rule_json(request.store.set_rule(rule)))

    return act


def clear_action(kind: RuleKind) -> Callable[[WebRequest], Cleared]:
    """Resume or unblock."""

    def act(request: WebRequest) -> Cleared:
        given = msgspec.structs.asdict(request.json(ReleaseRequest))
        given["all_"] = given.pop("all")
        return Cleared(request.store.clear_rule(parse_rule_to_clear(kind, **given)))

    return act


def order(request: WebRequest) -> SetOrCleared:
    return _set_or_clear(request, RuleKind.ORDER, request.json(OrderRequest))


def limit(request: WebRequest) -> SetOrCleared:
    return _set_or_clear(request, RuleKind.LIMIT, request.json(LimitRequest))


def _set_or_clear(
    request: WebRequest, kind: RuleKind, body: OrderRequest | LimitRequest
) -> SetOrCleared:
    given = msgspec.structs.asdict(body)
    off, lasts = given.pop("off"), given.pop("seconds", None)
    if off:
        return SetOrCleared(None, request.store.clear_rule(parse_rule_to_clear(kind, **given)))
    rule = parse_rule(kind, request.store.now, for_=lasts, **given)
    return SetOrCleared(rule_json(request.store.set_rule(rule)), cleared=False)
