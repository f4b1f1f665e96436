"""Options that narrow a table as it is loaded: `queue`, `task`, `state`, `since` and `until`.

Options, and no filters that Spark would hand over: Spark keeps the reader that took them with the
frame, and whatever is asked of that frame later would be answered out of the rows that fit them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from math import inf, nextafter
from typing import Any

import msgspec

from penstock.broker.checks import check_name
from penstock.errors import Refused
from penstock.job import State
from penstock.spark.source.tables import TIMES, columns_of

NARROWING = ("queue", "task", "state", "since", "until")
_NAMED = ("queue", "task", "state")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were asked for. Empty means any; times are whole microseconds, as of a row."""

    queue: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    since: int | None = None  # at or after
    until: int | None = None  # before

    def fields(self) -> dict[str, Any]:
        """As fields of a selection, with which a store gives these rows and maybe some more."""
        # A row shows its time rounded to a microsecond: it may be a little less than it shows. And
        # midnight itself is of the next day, which need not be read.
        since = None if self.since is None else (self.since - 1) / 1_000_000
        until = None if self.until is None else nextafter(self.until / 1_000_000, -inf)
        return {
            **{name: getattr(self, name) for name in _NAMED},
            "since": since,
            "until": until,
        }

    def rows_of(self, stored: Any) -> Any:
        """Just the rows that were asked for, of a batch as the store gives it."""
        pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
        wanted: list[Any] = []
        for name in _NAMED:
            if values := getattr(self, name):
                these = pa.array(values, pa.string())
                wanted.append(compute.is_in(stored.column(name), value_set=these))
        if self.since is not None or self.until is not None:
            at = stored.column("at").cast(pa.int64())
            if self.since is not None:
                wanted.append(compute.greater_equal(at, pa.scalar(self.since, pa.int64())))
            if self.until is not None:
                wanted.append(compute.less(at, pa.scalar(self.until, pa.int64())))
        for each in wanted[1:]:
            wanted[0] = compute.and_(wanted[0], each)
        return stored.filter(wanted[0]) if wanted else stored


def narrowed_by(options: Mapping[str, str], table: str) -> Narrowing:
    """What the options ask of this table; refused where it cannot be asked that."""
    given = {name: options[name] for name in NARROWING if options.get(name) is not None}
    columns = columns_of(table)
    for name in given:
        if name in _NAMED and name not in columns:
            has = [known for known in _NAMED if known in columns]
            raise Refused(f"option {name!r}: the table {table} has no {name}, only {has[0]}")
        if name not in _NAMED and table not in TIMES:
            raise Refused(
                f"option {name!r} is for attempts, events and gauges; of {table}, filter the frame:"
                " where(...) on the time that is meant"
            )
    asked = Narrowing(
        queue=_names("queue", given.get("queue")),
        task=_names("task", given.get("task")),
        state=_names("state", given.get("state")),
        since=_moment("since", given.get("since")),
        until=_moment("until", given.get("until")),
    )
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise Refused(
            f'option("since", {given["since"]!r}) must be earlier than until, {given["until"]!r}'
        )
    return asked


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """Names between commas, or as a list in JSON, which may hold any name."""
    if text is None:
        return ()
    if text.strip().startswith("["):
        try:
            names = msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError:
            raise Refused(
                f'option("{option}", {text!r}): what begins with a bracket is a list of texts in'
                ' JSON, as ["a","b"]'
            ) from None
        if not names:
            raise Refused(f'option("{option}", {text!r}) names none: leave it out for all')
    else:
        names = [name.strip() for name in text.split(",")]
    for name in names:
        if option != "state":
            check_name(f"option {option!r}:", name)
        elif name not in set(State):
            raise Refused(f"option 'state': {name!r} is no state; the six are {', '.join(State)}")
    return tuple(dict.fromkeys(names))


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        other = "" if option == "since" else "; a position goes into until_position"
        raise Refused(
            f'option("{option}", {text!r}) is not a time: write 2026-11-15T08:00Z{other}'
        ) from None
    if moment.utcoffset() is None:
        raise Refused(
            f'option("{option}", {text!r}) does not say of which zone: write 2026-11-15T08:00Z, or'
            " +01:00 in place of Z"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)
