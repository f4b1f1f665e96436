"""Declared secrets, kept out of what outlives the job.

A body names its secret arguments itself (its `secret` list), so that every store can hide them
without knowing the task. A job that has ended has `***` in their place, in every row of the store;
with `keep_secrets` encrypted ones stay in the row of a job that failed or was cancelled, until
the time that its body says (`secrets_until`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

HIDDEN = "***"
HASH = "penstock-arguments"  # a header: the hash by which a row that comes again is compared

_SHORTEST = 4  # shorter values would match ordinary words
_KEEP, _UNTIL = "keep_secrets", "secrets_until"
_UNTIL_MARK = b'"secrets_until":'


def redact(body: bytes) -> bytes:
    """The body with its secret arguments hidden; unchanged where none is declared."""
    secrets = _secrets(body)
    if secrets is None:
        return body
    fields, arguments, names = secrets
    given = _given(fields.get("flow"))
    for name in names:
        # The place of another job's output holds no secret, and a retry needs it.
        if arguments[name] is not None or name not in given:
            arguments[name] = HIDDEN
    return msgspec.json.encode(fields)


def body_at_end(body: bytes, ended_at: float) -> bytes:
    """The body of a job that failed or was cancelled: its secrets are hidden.

    With `keep_secrets` those that are encrypted stay for so many seconds. What is not encrypted is
    never kept, whatever the body says.
    """
    secrets = _secrets(body)
    if secrets is None:
        return body
    fields, arguments, names = secrets
    seconds = fields.get(_KEEP)
    if not isinstance(seconds, int | float) or seconds <= 0:
        return redact(body)
    kept = {name: arguments[name] for name in names if _is_sealed_value(arguments[name])}
    if not kept:
        return redact(body)
    fields = msgspec.json.decode(redact(body))
    fields["args"].update(kept)
    fields[_UNTIL] = ended_at + seconds
    return msgspec.json.encode(fields)


def secrets_until(body: bytes) -> float | None:
    """Until when an ended job keeps secrets; None: it has none."""
    if _UNTIL_MARK not in body:
        return None
    secrets = _secrets(body)
    until = None if secrets is None else secrets[0].get(_UNTIL)
    return float(until) if isinstance(until, int | float) else None


def without_kept_secrets(body: bytes) -> bytes:
    """The body of an ended job without secrets that it keeps; unchanged if it keeps none."""
    if _UNTIL_MARK not in body:
        return body
    fields: dict[str, Any] = msgspec.json.decode(redact(body))
    fields.pop(_UNTIL, None)
    return msgspec.json.encode(fields)


def gone_secrets(body: bytes, now: float) -> list[str]:
    """The secret arguments of an ended job whose values are not stored any more.

    Nor are those whose time is over, although they may not have been pruned yet.
    """
    until = secrets_until(body)
    secrets = _secrets(body if until is None or until > now else redact(body))
    if secrets is None:
        return []
    _, arguments, names = secrets
    return [name for name in names if arguments[name] == HIDDEN]


def replaceable_secrets(body: bytes, now: float) -> list[str]:
    """The secret arguments of an ended job that a retry may be given: those gone, those kept."""
    return gone_secrets(body if secrets_until(body) is None else redact(body), now)


def with_secrets(body: bytes, values: Mapping[str, Any], now: float) -> bytes | None:
    """The body of an ended job as it can run again, with these values for its secrets.

    None if a secret that is gone is not among them. Those that are kept are used if no other value
    is given.
    """
    if any(name not in values for name in gone_secrets(body, now)):
        return None
    given = [name for name in replaceable_secrets(body, now) if name in values]
    if not given and _UNTIL_MARK not in body:
        return body
    fields: dict[str, Any] = msgspec.json.decode(body)
    fields["args"].update((name, values[name]) for name in given)
    fields.pop(_UNTIL, None)
    return msgspec.json.encode(fields)


def redact_text(text: str, body: bytes) -> str:
    """A text about a job, such as its traceback, with the values of its secret arguments hidden."""
    secrets = _secrets(body)
    if secrets is None:
        return text
    _, arguments, names = secrets
    values = {value for name in names for value in _spellings(arguments[name])}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def is_sealed(body: bytes) -> bool:
    """Whether arguments are encrypted (see `app.key_ring`), and were not opened here."""
    return b'{"$sealed":"' in body


def readable_secrets(body: bytes) -> list[str]:
    """The secret arguments whose values are in the body, and not encrypted."""
    secrets = _secrets(body)
    if secrets is None:
        return []
    _, arguments, names = secrets
    hidden = (None, HIDDEN)
    return [
        name
        for name in names
        if arguments[name] not in hidden and not _is_sealed_value(arguments[name])
    ]


def declared_secrets(body: bytes) -> set[str]:
    """The arguments that the body declares as secret, whether or not it has them."""
    if b'"secret"' not in body:
        return set()
    try:
        return set(msgspec.json.decode(body, type=_Declared).secret)
    except msgspec.DecodeError:
        return set()


class _Declared(msgspec.Struct):
    secret: list[str] = []


def has_secrets(body: bytes) -> bool:
    """Whether the body declares secret arguments, or may do so: it cannot be read."""
    if b'"secret"' not in body:
        return False
    try:
        decoded: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return True
    return isinstance(decoded, dict) and bool(cast("dict[str, Any]", decoded).get("secret"))


def _secrets(body: bytes) -> tuple[dict[str, Any], dict[str, Any], list[str]] | None:
    """The decoded body, its arguments, and the names of those that are secret."""
    # The common body declares none, and need not be decoded to be sure of it.
    if b'"secret"' not in body:
        return None
    try:
        decoded: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    if not isinstance(decoded, dict):
        return None
    fields = cast("dict[str, Any]", decoded)
    secret, arguments = fields.get("secret"), fields.get("args")
    if not isinstance(secret, list) or not isinstance(arguments, dict):
        return None
    names = [name for name in cast("list[Any]", secret) if isinstance(name, str)]
    arguments = cast("dict[str, Any]", arguments)
    return fields, arguments, [name for name in names if name in arguments]


def _is_sealed_value(value: Any) -> bool:
    return isinstance(value, dict) and [*cast("dict[str, Any]", value)] == ["$sealed"]


def _given(flow: Any) -> set[Any]:
    """The arguments that are outputs of other jobs, which are filled in when the job runs."""
    fills: Any = cast("dict[str, Any]", flow).get("fill") if isinstance(flow, dict) else None
    try:
        return {fill[0][0] for fill in fills or () if len(fill[0]) == 1}
    except (TypeError, LookupError):
        return set()


def _spellings(value: Any) -> Iterator[str]:
    """The parts of a value, each as a text may spell it: plain, as Python shows it, as JSON."""
    if isinstance(value, dict):
        for name, part in cast("dict[str, Any]", value).items():
            yield from _spellings(name)
            yield from _spellings(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _spellings(part)
    elif isinstance(value, str):
        if "\n" in value:  # what is cut or indented line by line
            yield from (line for line in map(str.strip, value.splitlines()) if _worth_hiding(line))
        quoted = (repr(value), json.dumps(value), json.dumps(value, ensure_ascii=False))
        yield from (
            text for text in (value, *(each[1:-1] for each in quoted)) if _worth_hiding(text)
        )
    elif isinstance(value, int | float) and _worth_hiding(repr(value)):
        yield repr(value)


def _worth_hiding(text: str) -> bool:
    return len(text) >= _SHORTEST and text not in {"True", "False"}


def without_arguments(body: bytes) -> bytes:
    """The body with all of its arguments hidden; what else it says stays."""
    try:
        fields: Any = msgspec.json.decode(body)
        return msgspec.json.encode({**fields, "args": HIDDEN})
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return msgspec.json.encode({"args": HIDDEN})
