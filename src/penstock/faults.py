"""Where in a value is the thing that JSON cannot hold, or that would come back as something else.

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

_LEAVES = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)


def fault_in(value: object, path: str, depth: int = 0) -> str | None:
    """The first thing below `value` that JSON cannot hold; None if there is none."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, Enum):
        return fault_in(value.value, path, depth)
    if isinstance(value, float):
        if math.isfinite(value):
            return None
        shown = "NaN" if math.isnan(value) else f"{float(value)}"
        return f"{path}: {shown} cannot be stored as JSON; send None or a text instead"
    if isinstance(value, int):
        if SMALLEST_INT <= value <= LARGEST_INT:
            return None
        return f"{path}: an integer beyond 64 bits cannot be read back everywhere; send it as text"
    if isinstance(value, str):
        return _fault_in_text(value, path)
    if isinstance(value, _LEAVES):
        return None
    if depth >= DEEPEST:
        return f"{path}: more than {DEEPEST} levels deep; send a flatter value"
    if isinstance(value, dict):
        for key in cast("dict[object, object]", value):
            if isinstance(key, str) and (fault := _fault_in_text(key, f"{path}: a key")):
                return fault
            if isinstance(key, float) and not math.isfinite(key):
                return f"{path}: the key {key} cannot be stored as JSON; use a text"
    parts = parts_of(value)
    if parts is None:
        name = type(value).__qualname__
        return f"{path}: a {name} cannot be stored as JSON; send plain data, a dataclass or a Struct"
    for step, part in parts:
        if fault := fault_in(part, path + step, depth + 1):
            return fault
    return None


def _fault_in_text(text: str, path: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"{path}: character {error.start} is a lone surrogate, which is not text;"
            " clean it with .encode('utf-8', 'replace').decode()"
        )
    return None


def change_in(sent: object, back: object, path: str, depth: int = 0) -> str | None:
    """The first thing below `sent` that came back as something else; None if all is as it was.

    Tuples may come back as lists: no annotation asked for more.
    """
    if sent is None and back is None:
        return None
    if fault := fault_in(sent, path) if isinstance(sent, (str, int, float)) else None:
        return fault
    if depth > DEEPEST:
        return f"{path}: more than {DEEPEST} levels deep; send a flatter value"
    if isinstance(sent, dict) and isinstance(back, dict):
        back = cast("dict[object, object]", back)
        for key, part in cast("dict[object, object]", sent).items():
            if key not in back:
                return f"{path}: the key {key!r} would come back as text; use texts, or annotate"
            if change := change_in(part, back[key], f"{path}{_step(key)}", depth + 1):
                return change
        return None
    if isinstance(sent, (list, tuple)) and isinstance(back, (list, tuple)):
        pairs = zip(cast("list[object]", sent), cast("list[object]", back), strict=False)
        for index, (part, part_back) in enumerate(pairs):
            if change := change_in(part, part_back, f"{path}[{index}]", depth + 1):
                return change
        return None
    if type(sent) is type(back):
        if sent == back:
            return None
        mine, theirs = parts_of(sent), parts_of(back)
        for (step, part), (_, part_back) in zip(mine or (), theirs or (), strict=False):
            if change := change_in(part, part_back, path + step, depth + 1):
                return change
        return None if mine else f"{path}: {sent!r} would come back as {back!r}"
    if isinstance(sent, (str, int, float)) and not isinstance(sent, Enum) and sent == back:
        return None
    return (
        f"{path}: a {type(sent).__qualname__} would come back as {_named(back)};"
        " annotate the parameter with its type"
    )


def parts_of(value: object) -> Iterator[tuple[str, Any]] | None:
    """What a value is made of, each with the step of the path that leads there; None for a leaf."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return ((_step(key), part) for key, part in items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = cast("tuple[str, ...]", getattr(value, "_fields"))  # noqa: B009  not known to the type
        return ((f".{name}", getattr(value, name)) for name in names)
    if isinstance(value, (list, tuple, set, frozenset)):
        return (
            (f"[{index}]", part) for index, part in enumerate(cast("list[object]", value))
        )
    names: Any = None
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif is_pydantic(type(value)):
        names = list(getattr(type(value), "model_fields"))  # noqa: B009  not known to the type
    else:
        return None
    return ((f".{name}", getattr(value, name, None)) for name in names)


def is_pydantic(kind: object) -> bool:
    """Whether it is a pydantic model, found without importing pydantic."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _named(value: object) -> str:
    return "None" if value is None else f"a {type(value).__qualname__}"
