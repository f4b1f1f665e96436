"""Filters that Spark hands over, as a selection for the store.

The store gives at least what fits, and Spark applies its filters again: so a filter that is not
understood costs time and never a wrong row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.slice import Selection
from penstock.spark.tables import TIMES

_NAMED = frozenset({"queue", "task", "state"})
_MICROSECOND = 0.000_001  # what a time of the store may be rounded by


def narrowed(selection: Selection, filters: Iterable[Filter]) -> Selection:
    """The selection, as far as these filters narrow it."""
    for each in filters:
        if isinstance(each, EqualTo | In):
            selection = _of_values(selection, each)
        elif isinstance(each, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            selection = _of_time(selection, each)
    return selection


def _of_values(selection: Selection, each: EqualTo | In) -> Selection:
    name = ".".join(each.attribute)
    values: tuple[Any, ...] = each.value if isinstance(each, In) else (each.value,)
    if name == TIMES.get(selection.table) and isinstance(each, EqualTo):
        return _since(_until(selection, each.value), each.value)
    if name not in _NAMED or not all(isinstance(value, str) for value in values):
        return selection
    before: tuple[str, ...] = getattr(selection, name)
    both = tuple(value for value in values if not before or value in before)
    # Nothing can be both: either of them will do, and Spark finds that none fits.
    return replace(selection, **{name: both or values})


def _of_time(selection: Selection, each: Any) -> Selection:
    if ".".join(each.attribute) != TIMES.get(selection.table):
        return selection
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return _since(selection, each.value)
    return _until(selection, each.value)


def _since(selection: Selection, value: Any) -> Selection:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return selection
    since = value.timestamp() - _MICROSECOND
    return replace(selection, since=max(since, selection.since or since))


def _until(selection: Selection, value: Any) -> Selection:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return selection
    until = value.timestamp() + _MICROSECOND
    return replace(
        selection, until=until if selection.until is None else min(until, selection.until)
    )
