"""A deed in words: what somebody did, to what, and how far; for the Audit page and the terminal.

What the history holds of a deed is data. A row of a newer Penstock, or a damaged one, is shown with
its data as it is: an audit leaves nothing out because it has no word for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.operate.audit import Deed
from penstock.operate.why import moment
from penstock.rules.rule import Rule, RuleKind


class AuditSentence(NamedTuple):
    """`did` and `what` and `more` are one sentence; `thing` is what a page can lead to."""

    did: str
    what: str
    more: str = ""
    thing: tuple[str, str] | None = None  # the kind of it, and its name

    def __str__(self) -> str:
        return " ".join(part for part in self[:3] if part)


_SET = {
    RuleKind.PAUSE: ("paused", "resumed"),
    RuleKind.BLOCK: ("blocked", "unblocked"),
    RuleKind.LIMIT: ("limited", "took back the limit of"),
    RuleKind.ORDER: ("ordered by key", "took back the order of"),
}
_ACTS = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
_SCHEDULES = {
    "put": "put",
    "removed": "removed",
    "paused": "paused",
    "resumed": "resumed",
    "run now": "ran now",
}
_LAKES = {
    "begun": "began to fill",
    "set back": "set back",
    "gap": "found a gap in",
    "forgotten": "forgot",
}


def told_of(deed: Deed) -> AuditSentence:
    """The deed in words."""
    tell = _TELL.get(deed.kind)
    try:
        found = None if tell is None else tell(deed)
    except (PenstockError, TypeError, ValueError, KeyError, AttributeError):
        found = None
    return found or AuditSentence(deed.kind, _named(deed), _rest(deed.says), _thing(deed))


def _act(deed: Deed) -> AuditSentence | None:
    if deed.job is None:
        return None
    more = " in ".join(word for word in (deed.task, deed.queue) if word)
    return AuditSentence(
        _ACTS[deed.kind], f"job {deed.job}", f"({more})" if more else "", _thing(deed)
    )


def _flow(deed: Deed) -> AuditSentence:
    name, jobs = deed.says.get("name") or deed.job, deed.says.get("jobs")
    return AuditSentence(_ACTS[deed.says["says"]], f"flow {name}", _jobs(jobs), _thing(deed))


def _rule(deed: Deed) -> AuditSentence:
    says = deed.says
    tag, rate = says.get("tag"), says.get("rate")
    rule = Rule(
        RuleKind(says["kind"]),
        deed.queue,
        deed.task,
        version=says.get("version"),
        tag=None if tag is None else tuple(tag),
        key=says.get("key"),
        running=says.get("running"),
        rate=None if rate is None else tuple(rate),
        per_key=bool(says.get("per_key")),
        policy=says.get("policy"),
        until=says.get("until"),
    )
    did, undid = _SET[rule.kind]
    if not says.get("set", True):
        return AuditSentence(undid, rule.target, "", _thing(deed))
    bounds = {RuleKind.LIMIT: f"to {rule.bound}", RuleKind.ORDER: f"({rule.policy})"}
    ends = "" if rule.until is None else f"until {moment(rule.until)}"
    more = " ".join(part for part in (bounds.get(rule.kind, ""), ends) if part)
    return AuditSentence(did, rule.target, more, _thing(deed))


def _schedule(deed: Deed) -> AuditSentence:
    name = deed.says["schedule"]
    return AuditSentence(_SCHEDULES[deed.says["says"]], f"schedule {name}", "", ("schedule", name))


def _lake(deed: Deed) -> AuditSentence:
    says = deed.says
    rows = says.get("rows")
    more = f"({rows:,} rows)" if isinstance(rows, int) else ""
    return AuditSentence(_LAKES[says["says"]], f"lake {says.get('place') or says['lake']}", more)


def _enqueued(deed: Deed) -> AuditSentence:
    says = deed.says
    if "replay" in says:
        return AuditSentence("replayed", str(says["replay"]), _jobs(says.get("jobs")))
    what = " in ".join(word for word in (deed.task, deed.queue) if word)
    if deed.job is not None:
        other = says.get("copy_of")
        more = f"({what})" if other is None else f"a copy of {other} ({what})"
        return AuditSentence("enqueued", f"job {deed.job}", more, ("job", deed.job))
    return AuditSentence("enqueued", _counted(says.get("jobs")), f"of {what}", _thing(deed))


def _backfilled(deed: Deed) -> AuditSentence:
    says = deed.says
    ends = f"from {says['first']} to {says['last']} {_jobs(says.get('jobs'))}"
    return AuditSentence("ran a backfill of", deed.task or "", ends, ("backfill", deed.task or ""))


def _operation(deed: Deed) -> AuditSentence:
    says = deed.says
    if says["verb"] == "stop":
        return AuditSentence("stopped", "an operation", "", ("operation", says["operation"]))
    jobs = _counted(says.get("jobs")) + (" or more" if says.get("more") else "")
    ends = {"cancelled": ", until it was stopped", "failed": ", until it failed"}
    more = f"that matched {says['filter']}{ends.get(says.get('state', ''), '')}"
    return AuditSentence(_ACTS[says["verb"]], jobs, more, ("operation", says["operation"]))


def _signal(deed: Deed) -> AuditSentence:
    return AuditSentence("sent the signal", deed.says["signal"], _jobs(deed.says.get("jobs")))


_TELL = {
    "enqueue": _enqueued,
    "backfill": _backfilled,
    "operation": _operation,
    "signal": _signal,
    **dict.fromkeys(_ACTS, _act),
    "flow": _flow,
    "rule": _rule,
    "schedule": _schedule,
    "lake": _lake,
}


def _thing(deed: Deed) -> tuple[str, str] | None:
    if deed.job is not None:
        return ("flow" if deed.kind == "flow" else "job"), deed.job
    return None if deed.queue is None else ("queue", deed.queue)


def _jobs(jobs: Any) -> str:
    return f"({_counted(jobs)})" if isinstance(jobs, int) else ""


def _counted(jobs: Any) -> str:
    return f"{jobs:,} {'job' if jobs == 1 else 'jobs'}"


def _named(deed: Deed) -> str:
    words = (("job", deed.job), ("task", deed.task), ("queue", deed.queue))
    return " ".join(f"{word} {value}" for word, value in words if value)


def _rest(says: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in says.items()
        if name not in {"queue", "task"}
    )
