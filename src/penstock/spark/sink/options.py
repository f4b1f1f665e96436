"""The options of `df.write.format("penstock").option(...)`, checked before anything is written.

An option is a value for all rows; the same name with the suffix `_column` names a column with a
value for each row. Such a column is not an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from penstock.broker.values import UNNAMED
from penstock.errors import Refused
from penstock.job import Unique
from penstock.spark.row_ids import check_on_change
from penstock.task.option_checks import (
    check_identifier,
    check_priority,
    check_short_text,
    check_task,
    check_unique,
)

ROLES = ("args", "at", "hash", "id", "key", "priority", "queue", "tags", "task", "unique")
NOT_IN_PARCELS = frozenset(
    {"at", "id", "key", "tags", "unique"}
)  # jobs with one of these do not fit into a parcel
_FOR_ALL_ROWS = (
    *(
        "app",
        "app_name",
        "arguments",
        "on_change",
        "priority",
        "profile",
        "queue",
        "recipe",
        "rejects",
    ),
    *("rows_argument", "rows_per_job", "task", "unique_for", "unique_until", "url", "version"),
    "write",
)
_RESERVED = (UNNAMED, "stream/")  # names of writes that the sink itself gives
_OF_SPARK = frozenset({"checkpointlocation", "path", "table"})  # ignored: Spark's own


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one write."""

    columns: Mapping[str, str] = {}  # role -> column
    app: str | None = None
    app_name: str | None = None  # without `app`: the name of the app that runs the jobs
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
    on_change: str = "refuse"  # with an id: if a row comes again with other arguments
    recipe: str | None = None  # from `apply`: the task's JobTemplate, as JSON

    def __repr__(self) -> str:
        return "SinkOptions(...)"  # the URL may hold a password, and Spark logs values

    def unique(self, key: str) -> Unique | None:
        return check_unique(key, self.unique_until, self.unique_for)


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    """The options as Spark passes them; unknown names are refused."""
    options = {name.lower(): value for name, value in given.items()}
    known = {*_FOR_ALL_ROWS, *(f"{role}_column" for role in ROLES)}
    for name in options.keys() - known - _OF_SPARK:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise Refused(f"option {name!r} is not an option of the sink{hint}")
    columns = {role: options[f"{role}_column"] for role in ROLES if f"{role}_column" in options}
    checked = _checked({name: options[name] for name in _FOR_ALL_ROWS if name in options})
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
            checked[name] = _number(name, options[name], int)
    check_priority(checked.get("priority", 0))
    for name in ("version", "rows_per_job"):
        if checked.get(name, 1) < 1:
            raise Refused(f"option {name}={options[name]!r}: a whole number from 1 up")
    if "arguments" in options:
        named = options["arguments"].split(",") if options["arguments"].strip() else []
        checked["arguments"] = tuple(part.strip() for part in named)
    if "unique_for" in options:
        checked["unique_for"] = _number("unique_for", options["unique_for"], float)
    write = check_short_text("write", options.get("write"))
    if write is not None and write.startswith(_RESERVED):
        raise Refused(f"option write={write!r}: {' and '.join(_RESERVED)} are for Spark's sink")
    return checked


def _check_together(checked: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    for role in ("priority", "queue", "task"):
        if role in columns and role in checked:
            raise Refused(f"options {role} and {role}_column exclude each other: give one of them")
    if "task" not in columns and "task" not in checked:
        raise Refused(
            'no task: give .option("task", "mail:send"), or a task_column with a name per row'
        )
    if "args" in columns and "arguments" in checked:
        raise Refused("options args_column and arguments both name the arguments: give one of them")
    if "rows_per_job" in checked and (own := sorted(columns.keys() - {"args"})):
        raise Refused(
            f"rows_per_job puts several rows into one job, which cannot have a {own[0]} per row:"
            f" leave out {own[0]}_column"
        )
    if "rows_argument" in checked and "rows_per_job" not in checked:
        raise Refused("rows_argument needs rows_per_job: give that, too")
    _check_of_ids(checked, columns)
    if "unique" in columns:
        check_unique("any", checked.get("unique_until", "ended"), checked.get("unique_for"))
    elif "unique_until" in checked or "unique_for" in checked:
        raise Refused("unique_until and unique_for need unique_column: give that, too")
    if "app" in checked and (extra := sorted({"version", "app_name"} & checked.keys())):
        raise Refused(f"option {extra[0]} comes from the task if app is given: leave it out")


def _check_of_ids(checked: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    """Options for rows with an id."""
    check_on_change(checked.get("on_change", "refuse"))
    for given, name in (("hash" in columns, "hash_column"), ("on_change" in checked, "on_change")):
        if given and "id" not in columns:
            raise Refused(f"option {name} is for rows with an id: give id_column, too")


def _number(name: str, text: str, kind: type[int | float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        needed = "a whole number" if kind is int else "seconds, as a number"
        raise Refused(f"option {name}={text!r}: {needed}") from None
