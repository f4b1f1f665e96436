"""Audit entries as sentences: what somebody did, to what; for the Audit page and the terminal.

A row of a newer Penstock, or a damaged one, is shown with its raw data: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.operate.audit import AuditEntry
from penstock.operate.time_text import time_text
from penstock.rules.rule import Rule, RuleKind


class AuditSentence(NamedTuple):
    """`did`, `what` and `more` are one sentence; `subject` is what a page links to."""

    did: str
    what: str
    more: str = ""
    subject: tuple[str, str] | None = None  # its kind and its name or id

    def __str__(self) -> str:
        return " ".join(part for part in self[:3] if part)


_SET = {
    RuleKind.PAUSE: ("paused", "resumed"),
    RuleKind.BLOCK: ("blocked", "unblocked"),
    RuleKind.LIMIT: ("limited", "removed the limit of"),
    RuleKind.ORDER: ("ordered by key", "removed the order of"),
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


def audit_sentence(entry: AuditEntry) -> AuditSentence:
    """The entry as a sentence."""
    make = _SENTENCES.get(entry.kind)
    try:
        sentence = None if make is None else make(entry)
    except (PenstockError, TypeError, ValueError, KeyError, AttributeError):
        sentence = None
    return sentence or AuditSentence(entry.kind, _named(entry), _rest(entry.says), _subject(entry))


def _act(entry: AuditEntry) -> AuditSentence | None:
    if entry.job is None:
        return None
    more = " in ".join(word for word in (entry.task, entry.queue) if word)
    return AuditSentence(
        _ACTS[entry.kind], f"job {entry.job}", f"({more})" if more else "", _subject(entry)
    )


def _flow(entry: AuditEntry) -> AuditSentence:
    name, jobs = entry.says.get("name") or entry.job, entry.says.get("jobs")
    return AuditSentence(_ACTS[entry.says["says"]], f"flow {name}", _jobs(jobs), _subject(entry))


def _rule(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    tag, rate = says.get("tag"), says.get("rate")
    rule = Rule(
        RuleKind(says["kind"]),
        entry.queue,
        entry.task,
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
        return AuditSentence(undid, rule.target, "", _subject(entry))
    bounds = {RuleKind.LIMIT: f"to {rule.bound}", RuleKind.ORDER: f"({rule.policy})"}
    ends = "" if rule.until is None else f"until {time_text(rule.until)}"
    more = " ".join(part for part in (bounds.get(rule.kind, ""), ends) if part)
    return AuditSentence(did, rule.target, more, _subject(entry))


def _schedule(entry: AuditEntry) -> AuditSentence:
    name = entry.says["schedule"]
    return AuditSentence(_SCHEDULES[entry.says["says"]], f"schedule {name}", "", ("schedule", name))


def _queue(entry: AuditEntry) -> AuditSentence:
    says, queue = str(entry.says["says"]), str(entry.says["queue"])
    options = entry.says.get("options", {})
    more = ", ".join(f"{name}={value}" for name, value in options.items())
    return AuditSentence(
        {"set": "set options of", "reset": "reset options of"}.get(says, says),
        f"queue {queue}",
        f"({more})" if more and says == "set" else "",
        ("queue", queue),
    )


def _subscription(entry: AuditEntry) -> AuditSentence:
    return AuditSentence(entry.says["says"], f"subscription {entry.says['subscription']}")


def _worker(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    if says["says"] == "stopped":
        return AuditSentence("stopped", f"worker {says['worker']}")
    did = "set" if says["says"] == "set" else "reset the settings of"
    more = f"to {says['settings']}" if says["says"] == "set" else ""
    return AuditSentence(did, f"worker {says['worker']}", more)


def _environment(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    if says["says"] == "let go":
        return AuditSentence("let go", "the store", f"of the environment {says['before']}")
    before = f", which was of {says['before']}" if says["before"] else ""
    return AuditSentence(
        says["says"], "the store", f"as of the environment {says['environment']}{before}"
    )


def _lake(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    rows = says.get("rows")
    more = f"({rows:,} rows)" if isinstance(rows, int) else ""
    did = "deleted rows of" if entry.kind == "forget_rows" else _LAKES[says["says"]]
    return AuditSentence(did, f"lake {says.get('place') or says['lake']}", more)


def _enqueued(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    if "replay" in says:
        return AuditSentence("replayed", str(says["replay"]), _jobs(says.get("jobs")))
    if "from" in says:
        return AuditSentence("imported", _counted(says.get("jobs")), f"from {says['from']}")
    if "topic" in says:
        return AuditSentence("published", f"topic {says['topic']}", _jobs(says.get("jobs")))
    what = " in ".join(word for word in (entry.task, entry.queue) if word)
    if entry.job is not None:
        other = says.get("copy_of")
        more = f"({what})" if other is None else f"a copy of {other} ({what})"
        return AuditSentence("enqueued", f"job {entry.job}", more, ("job", entry.job))
    return AuditSentence("enqueued", _counted(says.get("jobs")), f"of {what}", _subject(entry))


def _backfilled(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    ends = f"from {says['first']} to {says['last']} {_jobs(says.get('jobs'))}"
    return AuditSentence(
        "ran a backfill of", entry.task or "", ends, ("backfill", entry.task or "")
    )


def _operation(entry: AuditEntry) -> AuditSentence:
    says = entry.says
    if says["verb"] == "stop":
        return AuditSentence("stopped", "an operation", "", ("operation", says["operation"]))
    jobs = _counted(says.get("jobs")) + (" or more" if says.get("more") else "")
    ends = {"cancelled": ", until it was stopped", "failed": ", until it failed"}
    more = f"that matched {says['filter']}{ends.get(says.get('state', ''), '')}"
    return AuditSentence(_ACTS[says["verb"]], jobs, more, ("operation", says["operation"]))


def _signal(entry: AuditEntry) -> AuditSentence:
    return AuditSentence("sent the signal", entry.says["signal"], _jobs(entry.says.get("jobs")))


def _logged_in(entry: AuditEntry) -> AuditSentence:
    return AuditSentence("logged in", f"from {entry.says['from']}", f"({entry.says['role']})")


def _not_logged_in(entry: AuditEntry) -> AuditSentence:
    tokens, addresses = entry.says["tokens"], ", ".join(entry.says["from"])
    text = "a wrong token" if tokens == 1 else f"{tokens:,} wrong tokens"
    return AuditSentence("gave", text, f"from {addresses}")


def _exported(entry: AuditEntry) -> AuditSentence:
    return AuditSentence("exported", entry.says["what"], f"({entry.says['rows']:,} rows)")


_SENTENCES = {
    "login": _logged_in,
    "login_failed": _not_logged_in,
    "export": _exported,
    "enqueue": _enqueued,
    "backfill": _backfilled,
    "operation": _operation,
    "signal": _signal,
    **dict.fromkeys(_ACTS, _act),
    "flow": _flow,
    "rule": _rule,
    "schedule": _schedule,
    "queue": _queue,
    "subscription": _subscription,
    "worker": _worker,
    "environment": _environment,
    "lake": _lake,
    "forget_rows": _lake,
}


def _subject(entry: AuditEntry) -> tuple[str, str] | None:
    if entry.job is not None:
        return ("flow" if entry.kind == "flow" else "job"), entry.job
    return None if entry.queue is None else ("queue", entry.queue)


def _jobs(jobs: Any) -> str:
    return f"({_counted(jobs)})" if isinstance(jobs, int) else ""


def _counted(jobs: Any) -> str:
    return f"{jobs:,} {'job' if jobs == 1 else 'jobs'}"


def _named(entry: AuditEntry) -> str:
    words = (("job", entry.job), ("task", entry.task), ("queue", entry.queue))
    return " ".join(f"{word} {value}" for word, value in words if value)


def _rest(says: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in says.items()
        if name not in {"queue", "task"}
    )
