"""What `df.write.format("penstock").option(...)` can say, checked before anything is written.

An option is a value for all rows; the same name with `_column` behind it names the column that has
a value for each row. Such a column is not an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from penstock.errors import Refused
from penstock.job import Unique
from penstock.task.option_checks import (
    check_identifier,
    check_priority,
    check_short_text,
    check_task,
    check_unique,
)

ROLES = ("args", "at", "id", "key", "priority", "queue", "tags", "task", "unique")
ALONE = frozenset({"at", "id", "key", "tags", "unique"})  # these make a job travel alone
_PLAIN = (
    *("app", "app_name", "arguments", "priority", "profile", "queue", "recipe", "rejects"),
    *("rows_argument", "rows_per_job", "task", "unique_for", "unique_until", "url", "version"),
    "write",
)
_SPARKS = frozenset({"checkpointlocation", "path", "table"})  # Spark's own; not for us


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One write: what its rows become, and where."""

    columns: Mapping[str, str] = {}  # role -> column
    app: str | None = None
    app_name: str | None = None  # without `app`: the program that runs the jobs
    task: str | None = None
    queue: str | None = None
    priority: int | None = None
    version: int | None = None
    arguments: tuple[str, ...] | None = None  # None: every column without a role
    rows_per_job: int | None = None
    rows_argument: str | None = None
    rejects: str | None = None
    unique_until: str = "ended"
    unique_for: float | None = None
    write: str | None = None
    profile: str | None = None
    url: str | None = None
    recipe: str | None = None  # from `apply`: what its task's jobs are, without the task's code

    def __repr__(self) -> str:
        return "SinkOptions(...)"  # the URL may hold a password, and Spark logs what it meets

    def unique(self, key: str) -> Unique | None:
        return check_unique(key, self.unique_until, self.unique_for)


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    """The options as Spark hands them over; a name that nobody knows is refused."""
    options = {name.lower(): value for name, value in given.items()}
    known = {*_PLAIN, *(f"{role}_column" for role in ROLES)}
    for name in options.keys() - known - _SPARKS:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise Refused(f"option {name!r} is not known to the sink{hint}")
    columns = {role: options[f"{role}_column"] for role in ROLES if f"{role}_column" in options}
    checked = _checked({name: options[name] for name in _PLAIN if name in options})
    _check_together(checked, columns)
    return SinkOptions(columns=columns, **checked)


def _checked(options: Mapping[str, str]) -> dict[str, Any]:
    checked: dict[str, Any] = dict(options)
    for name, check in (
        ("task", check_task),
        ("queue", check_identifier),
        ("app_name", check_identifier),
    ):
        if name in options:
            check(name, options[name])
    for name in ("priority", "version", "rows_per_job"):
        if name in options:
            checked[name] = _whole(name, options[name])
    check_priority(checked.get("priority", 0))
    for name in ("version", "rows_per_job"):
        if checked.get(name, 1) < 1:
            raise Refused(f"option {name}={options[name]!r}: a whole number from 1 up")
    if "arguments" in options:
        named = options["arguments"].split(",") if options["arguments"].strip() else []
        checked["arguments"] = tuple(part.strip() for part in named)
    if "unique_for" in options:
        checked["unique_for"] = _seconds("unique_for", options["unique_for"])
    check_short_text("write", options.get("write"))
    return checked


def _check_together(checked: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    for role in ("priority", "queue", "task"):
        if role in columns and role in checked:
            raise Refused(f"options {role} and {role}_column both say it: give one of them")
    if "task" not in columns and "task" not in checked:
        raise Refused('which task? .option("task", "mail:send"), or task_column with a name a row')
    if "args" in columns and "arguments" in checked:
        raise Refused("options args_column and arguments both name the arguments: give one of them")
    if "rows_per_job" in checked and (own := sorted(columns.keys() - {"args"})):
        raise Refused(
            f"rows_per_job puts several rows into one job, which has no {own[0]} of each row:"
            f" leave out {own[0]}_column"
        )
    if "rows_argument" in checked and "rows_per_job" not in checked:
        raise Refused("rows_argument names the list of rows_per_job; give that, too")
    if "unique" in columns:
        check_unique("any", checked.get("unique_until", "ended"), checked.get("unique_for"))
    elif "unique_until" in checked or "unique_for" in checked:
        raise Refused("unique_until and unique_for go with unique_column; give that, too")
    if "app" in checked and (told := sorted({"version", "app_name"} & checked.keys())):
        raise Refused(f"the {told[0]} is the task's own where the app is given: leave it out")


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(f"option {name}={text!r}: a whole number") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refused(f"option {name}={text!r}: seconds, as a number") from None
