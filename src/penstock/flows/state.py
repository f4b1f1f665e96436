"""What a flow carries beside its jobs: properties that it is found by, and a state.

The state is a JSON object. A member changes it by a patch, which is merged: objects key by key,
however deep, anything else in the place of what stood there. Two patches that name different keys
lose nothing of each other, in whatever order they come. `null` is a value like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.broker.checks import check_name, check_text
from penstock.errors import Refused

MOST_STATE_BYTES = 256 * 1024
_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def merged(state: bytes, patch: bytes) -> bytes:
    """The state with the patch in it; what the patch does not name stays as it was, to the byte."""
    values = _read(state)
    for name, value in _read(patch).items():
        before = values.get(name)
        if before is not None and _is_object(before) and _is_object(value):
            values[name] = msgspec.Raw(merged(bytes(before), bytes(value)))
        else:
            values[name] = value
    return check_state(msgspec.json.encode(values))


def state_at(state: bytes, until: float | None, now: float) -> bytes:
    """The state as it stands now: an empty one, if its time is over."""
    return state if until is None or now < until else b"{}"


def state_end(ttl: float | None, now: float) -> float | None:
    """When a state that is written now is empty again."""
    return None if ttl is None else now + ttl


def _is_object(value: msgspec.Raw) -> bool:
    return bytes(value).lstrip().startswith(b"{")


def check_state(state: bytes) -> bytes:
    """A state as it may be stored: one JSON object, small enough to be read again and again."""
    try:
        _read(state)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(
            f"state {state[:60]!r}: a flow's state is one JSON object: {error}"
        ) from error
    if len(state) > MOST_STATE_BYTES:
        raise Refused(
            f"the state of the flow takes {len(state):,} bytes, the limit is "
            f"{MOST_STATE_BYTES:,}: store the data elsewhere and keep where it is"
        )
    return state


def check_carried(name: str, find: Mapping[str, Any], state: bytes) -> None:
    """Refuse a name, properties or a state that could not be stored, or not be found again."""
    if name:
        check_name("flow", name)
    for field, text in properties(find):
        check_name("find: a property", field)
        check_text(f"find: {field}", text)
    check_state(state)


def properties(find: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each property with its value as text; one that is a list is found by each element."""
    for name, value in find.items():
        several = isinstance(value, (list, tuple))
        values = cast("Sequence[Any]", value) if several else (value,)
        for text in dict.fromkeys(text_of(name, each) for each in values):
            yield name, text


def text_of(name: str, value: object) -> str:
    """A property's value as it is compared: 62 and "62" are the same."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return msgspec.json.encode(value).decode()
    raise Refused(f"find: {name}={value!r}: a text, a number, or a list of these; write str(...)")


def plain(find: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as JSON has them: a UUID or a date is its text."""
    try:
        return {name: msgspec.to_builtins(value) for name, value in find.items()}
    except TypeError as error:
        raise Refused(f"find={dict(find)!r}: {error}; write str(...)") from error


def key_of(name: str, field: str, text: str) -> bytes:
    """What stands for a property in an index: the same length, however long the words are."""
    words = msgspec.json.encode([name, field, text])
    return hashlib.sha256(words).digest()[:16]


def found_by(find: Mapping[str, Any], properties_wanted: Mapping[str, str]) -> bool:
    """Whether a flow with these properties is one that is looked for."""
    has = set(properties(find))
    return all(pair in has for pair in properties_wanted.items())
