"""Input as people type it: durations, times, sizes, numbers, NAME=VALUE.

The same for the command line, REST and the pages. `what` names the value in a refusal: `--for` on
the command line, `for` elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.broker.filter import parse_time
from penstock.errors import Refused

_NANOSECONDS = re.compile(r"[0-9]{16,20}", re.ASCII)  # as seconds no calendar has it
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)?")
_SPAN_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_LOOKS_LIKE_JSON = ("{", "[", '"')
_MOST_DIGITS = 20
_SHOWN = 200  # of what was typed, in a refusal


def parse_duration(text: str, what: str) -> float:
    """A duration in seconds: `90`, `90s`, `5m`, `2h`, `3d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text[:_SHOWN]!r} is not a duration: write 90s, 5m, 2h or 3d")
    return float(match[1]) * _SPAN_UNITS[match[2] or "s"]


def parse_datetime(text: str, what: str) -> datetime:
    """An ISO time, UTC unless it has an offset; or whole nanoseconds since 1970."""
    if _NANOSECONDS.fullmatch(text.strip()):
        return moment_of(int(text), what)
    if _SPAN.fullmatch(text.strip()):
        raise Refused(f"{what} {text!r} is a duration; write a time such as 2026-11-15T08:00Z")
    try:
        return datetime.fromtimestamp(parse_time(text.strip(), 0), UTC)
    except Refused:
        raise Refused(f"{what} {text[:_SHOWN]!r} is not a time: write 2026-11-15T08:00Z") from None


def moment_of(nanoseconds: int, what: str) -> datetime:
    """So many nanoseconds since 1970, of which microseconds are kept."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        raise Refused(f"{what} {nanoseconds}: no calendar has that time") from None


def parse_size(text: str, what: str) -> int:
    """A size in bytes: `512M`, `2G`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text!r} is not a size: write 512M or 2G")
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_integer(value: int | str, what: str, least: int, most: int) -> int:
    """A whole number within these bounds."""
    digits = str(value).removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < _MOST_DIGITS:
        number = int(value)
        if least <= number <= most:
            return number
    raise Refused(f"{what} {str(value)[:40]!r} is not a whole number from {least:,} to {most:,}")


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas."""
    if text is None:
        return None
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def parse_pair(text: str, what: str) -> tuple[str, str]:
    """`NAME=VALUE`; the value may be empty."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Refused(f"{what} {text[:_SHOWN]!r} is not NAME=VALUE")
    return name, value


def parse_pairs(texts: Iterable[str] | None, what: str) -> dict[str, str]:
    """Several `NAME=VALUE`."""
    return dict(parse_pair(text, what) for text in texts or ())


def parse_json_or_text(word: str, what: str) -> Any:
    """The value of valid JSON, else the text itself."""
    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError as error:
        if word.lstrip().startswith(_LOOKS_LIKE_JSON):
            raise Refused(
                f"{what} {word[:60]!r} looks like JSON, but is not valid: {error}"
            ) from error
        return word
