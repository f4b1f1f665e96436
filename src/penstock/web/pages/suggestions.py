"""Suggestions while somebody types a filter: its fields, their words, and names that there are.

Names are those of tasks and queues that hold jobs now, and of the tasks of the app, if the
dashboard has one. Nothing here looks at a job.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from penstock.broker.filter import DUE
from penstock.job import State
from penstock.web.request import Asked

MOST = 12
FIELDS = (
    *("state:", "due:", "task:", "queue:", "key:", "reason:", "tag.", "arg."),
    *("since:", "until:"),
)
TIMES = ("15m", "1h", "6h", "1d", "7d")


def show(asked: Asked) -> list[str]:
    """Words that could stand where this one is being typed."""
    word = asked.word("word")
    minus = "-" if word.startswith("-") else ""
    field, colon, value = word.removeprefix("-").partition(":")
    if not colon:
        fields = FIELDS if not minus else tuple(each for each in FIELDS if each not in _BOUNDS)
        return [minus + each for each in fields if each.startswith(field)]
    found = _beginning(_names(asked, field), value.strip("'\""))
    return [f"{minus}{field}:{shlex.quote(name)}" for name in found[:MOST]]


_BOUNDS = {"since:", "until:"}


def _names(asked: Asked, field: str) -> Iterable[str]:
    match field:
        case "state":
            return list(State)
        case "due":
            return DUE
        case "task":
            app = () if asked.site.app is None else asked.site.app.tasks
            return {*app, *(count.task for count in asked.verbs.count())}
        case "queue":
            return {count.queue for count in asked.verbs.count()}
        case "since" | "until":
            return TIMES
        case _:
            return ()


def _beginning(names: Iterable[str], typed: str) -> list[str]:
    """Those that have what was typed in them; those that begin with it first."""
    typed = typed.casefold()
    found = [name for name in names if typed in name.casefold() and name != typed]
    ordered = found if isinstance(names, (list, tuple)) else sorted(found)
    return sorted(ordered, key=lambda name: not name.casefold().startswith(typed))
