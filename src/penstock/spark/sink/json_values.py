"""Arrow columns as Python values with a JSON form; rows without one are faults.

The JSON form of each type is a promise to the user (docs/reference/spark-sink.md). Values go to the
same encoder as any enqueue, except times: Arrow formats those, a hundred times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.enqueue.json_faults import fault_in
from penstock.spark.untyped_arrow import arrow, compute, types

_FIRST_DAY, _LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31, in days since the epoch
_DAY = 86_400_000_000  # in microseconds

Faults = dict[int, str]  # row number -> why it cannot become a job
Convert = Callable[[Any], Any]


def values_of(name: str, column: Any, faults: Faults) -> list[Any]:
    """The values of a column, ready to be encoded; bad rows are added to `faults`."""
    kind = column.type
    if types.is_floating(kind):
        return _numbers(name, column, faults)
    if types.is_timestamp(kind) or types.is_date(kind):
        return _times(name, column, faults)
    if not types.is_nested(kind):
        return column.to_pylist()
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):  # a nested time outside of years 1 to 9999
        values = _one_by_one(name, column, faults)
    if (convert := _converter(kind)) is not None:
        values = [None if value is None else convert(value) for value in values]
    for row, value in enumerate(values):
        if value is not None and (fault := fault_in(value, f"column {name}")):
            faults.setdefault(row, fault)
    return values


def seconds_of(name: str, column: Any, faults: Faults) -> list[float | None]:
    """Times as seconds since the epoch; times outside of years 1 to 9999 go to `faults`."""
    whole = column.cast(arrow.timestamp("us", "UTC")).cast(arrow.int64())
    _outside(name, whole, _DAY, faults)
    return [None if value is None else value / 1e6 for value in whole.to_pylist()]


def _numbers(name: str, column: Any, faults: Faults) -> list[Any]:
    values = column.to_pylist()
    finite = compute.is_finite(column)
    if compute.all(finite, skip_nulls=True).as_py() is False:
        for row, good in enumerate(finite.to_pylist()):
            if good is False:
                fault = fault_in(values[row], f"column {name}")
                faults.setdefault(row, fault or f"column {name}: not a finite number")
                values[row] = None
    return values


def _times(name: str, column: Any, faults: Faults) -> list[Any]:
    kind = column.type
    dated = types.is_date(kind)
    whole = column.cast(arrow.date32() if dated else arrow.timestamp("us", kind.tz))
    whole = whole.cast(arrow.int32() if dated else arrow.int64())
    outside = _outside(name, whole, 1 if dated else _DAY, faults)
    if outside is not None:
        column = compute.if_else(outside, arrow.scalar(None, kind), column)
    if dated:
        return column.to_pylist()
    zone = "" if kind.tz is None else "Z"
    if zone:
        column = column.cast(arrow.timestamp("us", "UTC"))
    texts = column.cast(arrow.timestamp("us")).cast(arrow.string())
    day = compute.utf8_slice_codeunits(texts, 0, 10)
    time = compute.utf8_slice_codeunits(texts, 11)
    return compute.binary_join_element_wise(day, "T", time, zone, "").to_pylist()


def _outside(name: str, whole: Any, day: int, faults: Faults) -> Any:
    """A mask of times outside of years 1 to 9999, in units of 1/`day` days; None if none is."""
    first, last = _FIRST_DAY * day, (_LAST_DAY + 1) * day - 1
    bounds = compute.min_max(whole).as_py()
    if bounds["min"] is None or (bounds["min"] >= first and bounds["max"] <= last):
        return None
    outside = compute.or_(compute.less(whole, first), compute.greater(whole, last))
    for row, out in enumerate(outside.to_pylist()):
        if out:
            fault = f"column {name}: a time before the year 1 or after 9999 cannot be stored"
            faults.setdefault(row, fault)
    return outside


def _one_by_one(name: str, column: Any, faults: Faults) -> list[Any]:
    values: list[Any] = []
    for row, value in enumerate(column):
        try:
            values.append(value.as_py())
        except (OverflowError, ValueError) as error:
            faults.setdefault(row, f"column {name}: {error}")
            values.append(None)
    return values


def _converter(kind: Any) -> Convert | None:
    """Converts a nested value to its JSON form: Arrow gives maps as lists of pairs."""
    if types.is_map(kind):
        inner = _converter(kind.item_type)
        return lambda pairs: {key: _converted(inner, value) for key, value in pairs}
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _converter(kind.value_type)
        return None if inner is None else lambda items: [_converted(inner, item) for item in items]
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        converters = {
            field.name: convert for field in fields if (convert := _converter(field.type))
        }
        if converters:
            return lambda fields: {
                name: _converted(converters.get(name), value) for name, value in fields.items()
            }
    return None


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
