"""Options that filter a table as it is loaded: `queue`, `task`, `state`, `since` and `until`.

Options instead of predicate pushdown: Spark keeps the reader with the pushed filters for the whole
DataFrame, so a later action with other filters would see only the rows of the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from math import inf, nextafter
from typing import Any

import msgspec

from penstock.broker.checks import check_name
from penstock.errors import Refused
from penstock.job import State
from penstock.spark.source.tables import TIMES, columns_of
from penstock.spark.untyped_arrow import arrow, compute

FILTERS = ("queue", "task", "state", "since", "until")
_NAME_FILTERS = ("queue", "task", "state")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to load. Empty means any; times are microseconds since the epoch."""

    queue: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    since: int | None = None  # at or after
    until: int | None = None  # before

    def selection_fields(self) -> dict[str, Any]:
        """As fields of a Selection, for which a store gives these rows and maybe some more."""
        # A stored time may be up to a microsecond before the rounded one that a row shows. And
        # `until` is exclusive: at midnight the next day's partition need not be read.
        since = None if self.since is None else (self.since - 1) / 1_000_000
        until = None if self.until is None else nextafter(self.until / 1_000_000, -inf)
        return {
            **{name: getattr(self, name) for name in _NAME_FILTERS},
            "since": since,
            "until": until,
        }

    def apply(self, stored: Any) -> Any:
        """Filter a batch of the store's rows exactly."""
        masks: list[Any] = []
        for name in _NAME_FILTERS:
            if values := getattr(self, name):
                value_set = arrow.array(values, arrow.string())
                masks.append(compute.is_in(stored.column(name), value_set=value_set))
        if self.since is not None or self.until is not None:
            at = stored.column("at").cast(arrow.int64())
            if self.since is not None:
                masks.append(compute.greater_equal(at, arrow.scalar(self.since, arrow.int64())))
            if self.until is not None:
                masks.append(compute.less(at, arrow.scalar(self.until, arrow.int64())))
        return stored.filter(reduce(compute.and_, masks)) if masks else stored


def row_filter(options: Mapping[str, str], table: str) -> RowFilter:
    """The filter of these options; refused if the table has no such column."""
    given = {name: options[name] for name in FILTERS if options.get(name) is not None}
    columns = columns_of(table)
    for name in given:
        if name in _NAME_FILTERS and name not in columns:
            has = [known for known in _NAME_FILTERS if known in columns]
            raise Refused(f"option {name!r}: the table {table} has no {name}, only {has[0]}")
        if name not in _NAME_FILTERS and table not in TIMES:
            raise Refused(
                f"option {name!r} is for attempts, events and gauges; for {table}, filter the"
                " DataFrame: where(...) on one of its times"
            )
    chosen = RowFilter(
        queue=_names("queue", given.get("queue")),
        task=_names("task", given.get("task")),
        state=_names("state", given.get("state")),
        since=_moment("since", given.get("since")),
        until=_moment("until", given.get("until")),
    )
    if chosen.since is not None and chosen.until is not None and chosen.since >= chosen.until:
        raise Refused(
            f'option("since", {given["since"]!r}) must be earlier than until, {given["until"]!r}'
        )
    return chosen


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """Names separated by commas, or as a JSON list, which may hold any name."""
    if text is None:
        return ()
    if text.strip().startswith("["):
        try:
            names = msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError:
            raise Refused(
                f'option("{option}", {text!r}): a value that begins with a bracket must be a'
                ' JSON list of strings, as ["a","b"]'
            ) from None
        if not names:
            raise Refused(f'option("{option}", {text!r}) is empty: leave it out for all')
    else:
        names = [name.strip() for name in text.split(",")]
    for name in names:
        if option != "state":
            check_name(f"option {option!r}:", name)
        elif name not in set(State):
            raise Refused(
                f"option 'state': {name!r} is no state; the states are {', '.join(State)}"
            )
    return tuple(dict.fromkeys(names))


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "" if option == "since" else "; for a position use until_position"
        raise Refused(
            f'option("{option}", {text!r}) is not a time: write 2026-11-15T08:00Z{hint}'
        ) from None
    if moment.utcoffset() is None:
        raise Refused(
            f'option("{option}", {text!r}) has no time zone: write 2026-11-15T08:00Z, or +01:00 in'
            " place of Z"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)
