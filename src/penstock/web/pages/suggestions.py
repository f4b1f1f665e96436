"""Completions for the filter: its fields, their values, and the names of tasks and queues.

Names are those of tasks and queues with jobs, and of the tasks of the app, if there is one. No job
is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from penstock.broker.filter import DUE
from penstock.job import State
from penstock.web.request import WebRequest

MOST = 12
FIELDS = (
    *("state:", "due:", "task:", "queue:", "key:", "reason:", "tag.", "arg."),
    *("since:", "until:"),
)
TIMES = ("15m", "1h", "6h", "1d", "7d")


def show(request: WebRequest) -> list[str]:
    """Completions of the word that is being typed."""
    word = request.word("word")
    minus = "-" if word.startswith("-") else ""
    field, colon, value = word.removeprefix("-").partition(":")
    if not colon:
        fields = FIELDS if not minus else tuple(each for each in FIELDS if each not in _BOUNDS)
        return [minus + each for each in fields if each.startswith(field)]
    found = _completions(_names(request, field), value.strip("'\""))
    return [f"{minus}{field}:{shlex.quote(name)}" for name in found[:MOST]]


_BOUNDS = {"since:", "until:"}


def _names(request: WebRequest, field: str) -> Iterable[str]:
    match field:
        case "state":
            return list(State)
        case "due":
            return DUE
        case "task":
            return {*request.tasks, *(count.task for count in request.store.count())}
        case "queue":
            return {count.queue for count in request.store.count()}
        case "since" | "until":
            return TIMES
        case _:
            return ()


def _completions(names: Iterable[str], typed: str) -> list[str]:
    """Names that contain the text; those that begin with it first."""
    typed = typed.casefold()
    found = [name for name in names if typed in name.casefold() and name != typed]
    ordered = found if isinstance(names, (list, tuple)) else sorted(found)
    return sorted(ordered, key=lambda name: not name.casefold().startswith(typed))
