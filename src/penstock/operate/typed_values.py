"""Values as people type them: stretches of time, moments, sizes, numbers, NAME=VALUE.

One reading for the command line, REST and the pages. `what` is how the one who typed it knows the
value: `--for` there, `for` elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.broker.filter import parse_time
from penstock.errors import Refused

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)?")
_SPAN_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_LOOKS_LIKE_JSON = ("{", "[", '"')
_MOST_DIGITS = 20
_SHOWN = 200  # of what was typed, in a refusal


def span_of(text: str, what: str) -> float:
    """A stretch of time in seconds: `90`, `90s`, `5m`, `2h`, `3d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text[:_SHOWN]!r} is not a stretch of time: write 90s, 5m, 2h or 3d")
    return float(match[1]) * _SPAN_UNITS[match[2] or "s"]


def moment_of(text: str, what: str) -> datetime:
    """A moment to come: an ISO time, in UTC unless it says."""
    if _SPAN.fullmatch(text.strip()):
        raise Refused(f"{what} {text!r} is a stretch of time; a moment is 2026-11-15T08:00Z")
    try:
        return datetime.fromtimestamp(parse_time(text.strip(), 0), UTC)
    except Refused:
        raise Refused(
            f"{what} {text[:_SHOWN]!r} is not a moment: write 2026-11-15T08:00Z"
        ) from None


def bytes_of(text: str, what: str) -> int:
    """A size in bytes: `512M`, `2G`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text!r} is not a size: write 512M or 2G")
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def number_of(value: int | str, what: str, least: int, most: int) -> int:
    """A whole number within these bounds."""
    digits = str(value).removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < _MOST_DIGITS:
        number = int(value)
        if least <= number <= most:
            return number
    raise Refused(f"{what} {str(value)[:40]!r}: a whole number from {least:,} to {most:,}")


def names_of(text: str | None) -> tuple[str, ...] | None:
    """Names between commas."""
    if text is None:
        return None
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def pair_of(text: str, what: str) -> tuple[str, str]:
    """`NAME=VALUE`; the value may hold anything, also nothing."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Refused(f"{what} {text[:_SHOWN]!r}: write NAME=VALUE")
    return name, value


def pairs_of(texts: Iterable[str] | None, what: str) -> dict[str, str]:
    """`NAME=VALUE`, each."""
    return dict(pair_of(text, what) for text in texts or ())


def json_or_text(word: str, what: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError as error:
        if word.lstrip().startswith(_LOOKS_LIKE_JSON):
            raise Refused(f"{what} {word[:60]!r} begins as JSON, but is not: {error}") from error
        return word
