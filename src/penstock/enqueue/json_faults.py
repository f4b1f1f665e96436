"""Finds what in a value JSON cannot hold, or would give back as another type.

Only looked at when there is reason to: encoding a good value never walks it. Every answer is a
sentence that begins with the path inside the value, `argument order.lines[3].price: ...`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

import msgspec

DEEPEST = 64
LARGEST_INT = 2**63 - 1
SMALLEST_INT = -(2**63)

_LEAVES = (
    *(str, int, float, bytes, bytearray, memoryview),
    *(datetime, date, time, timedelta, Decimal, UUID),
)
_KEYS = (int, float, Enum, datetime, date, time, timedelta, Decimal, UUID, bytes)
_MISSING: Any = object()


def fault_in(value: Any, path: str, depth: int = 0) -> str | None:
    """The first thing below `value` that JSON cannot hold; None if there is none."""
    kind = kind_of(value)
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, _LEAVES):
        return _fault_in_leaf(value, path)
    if depth >= DEEPEST:
        return _too_deep(path)
    if isinstance(value, dict):
        for key in cast("dict[Any, Any]", value):
            if not isinstance(key, (str, *_KEYS)):
                return f"{path}: the key {key!r} cannot be stored as JSON; use texts as keys"
            if fault := _fault_in_leaf(key, f"{path}: a key"):
                return fault
    parts = parts_of(value)
    if parts is None:
        name = kind.__qualname__
        return f"{path}: {name} cannot be stored as JSON; use plain data, a dataclass or a Struct"
    faults = (fault_in(part, path + step, depth + 1) for step, part in parts)
    return next((fault for fault in faults if fault), None)


def _fault_in_leaf(value: Any, path: str) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else f"{float(value)}"
        return f"{path}: {shown} cannot be stored as JSON; send None or a text instead"
    if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
        return f"{path}: an integer beyond 64 bits is not read back everywhere; send it as text"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return (
                f"{path}: character {error.start} is a lone surrogate, which is not text;"
                " clean it with .encode('utf-8', 'replace').decode()"
            )
    return None


def _too_deep(path: str) -> str:
    return f"{path[:200]}: more than {DEEPEST} levels deep; send a flatter value"


def change_in(sent: Any, back: Any, path: str, depth: int = 0) -> str | None:
    """The first thing below `sent` that came back as something else; None if all is as it was.

    Tuples may come back as lists: no annotation asked for more.
    """
    if isinstance(sent, (str, int, float)) and (fault := _fault_in_leaf(sent, path)):
        return fault
    if depth > DEEPEST:
        return _too_deep(path)
    pairs = _pairs(sent, back)
    if pairs is None:
        return _changed_leaf(sent, back, path)
    changes = (
        f"{path}: the key {step} would come back as text; use texts, or annotate it"
        if part_back is _MISSING
        else change_in(part, part_back, path + step, depth + 1)
        for step, part, part_back in pairs
    )
    return next((change for change in changes if change), None)


def _pairs(sent: Any, back: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """The parts of both, side by side; None if they have not the same shape, or no parts."""
    kind = kind_of(sent)
    if isinstance(sent, dict) and isinstance(back, dict):
        return _pairs_of_dicts(cast("dict[Any, Any]", sent), cast("dict[Any, Any]", back))
    if isinstance(sent, (list, tuple)) and isinstance(back, (list, tuple)):
        both = zip(cast("list[Any]", sent), cast("list[Any]", back), strict=False)
        return ((f"[{index}]", *parts) for index, parts in enumerate(both))
    if kind is not type(back) or isinstance(sent, (set, frozenset)):
        return None
    parts = parts_of(sent)
    if parts is None:
        return None
    return ((step, part, getattr(back, step[1:], None)) for step, part in parts)


def _pairs_of_dicts(sent: dict[Any, Any], back: dict[Any, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key, part in sent.items():
        if key in back:
            yield _step(key), part, back[key]
        else:
            yield repr(key), part, _MISSING


def _changed_leaf(sent: Any, back: Any, path: str) -> str | None:
    kind, kind_back = kind_of(sent), kind_of(back)
    plain = isinstance(sent, (str, int, float)) and not isinstance(sent, Enum)
    if (kind is kind_back or plain) and sent == back:
        return None
    name = "None" if back is None else kind_back.__qualname__
    return f"{path}: {kind.__qualname__} would come back as {name}; annotate it with its type"


def parts_of(value: Any) -> Iterator[tuple[str, Any]] | None:
    """What a value is made of, each with the step of the path that leads there; None for a leaf."""
    kind = kind_of(value)
    names: Any
    if isinstance(value, dict):
        return ((_step(key), part) for key, part in cast("dict[Any, Any]", value).items())
    if isinstance(value, (list, tuple, set, frozenset)) and not hasattr(kind, "_fields"):
        return ((f"[{index}]", part) for index, part in enumerate(cast("list[Any]", value)))
    if isinstance(value, msgspec.Struct):
        names = kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif is_pydantic(kind):
        names = list(kind.model_fields)
    else:
        names = getattr(kind, "_fields", None)  # a named tuple
    if names is None:
        return None
    return ((f".{name}", getattr(cast("Any", value), name, None)) for name in names)


def kind_of(value: Any) -> Any:
    """Its class, of which the type checker need not know the parameters."""
    return cast("Any", type(value))


def is_pydantic(kind: Any) -> bool:
    """Whether it is a pydantic model, found without importing pydantic."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
