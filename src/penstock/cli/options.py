"""Options that several commands share, and how the values people type are read.

One spelling each, so that a flag learnt at one command works at every other.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.broker.checks import legible
from penstock.broker.filter import parse_time
from penstock.errors import Refused

Url = Annotated[
    str | None,
    typer.Option("--url", help="The store, for example sqlite:///jobs.db.", show_default=False),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help="A profile of penstock.toml.", show_default=False),
]
AppTarget = Annotated[
    str | None,
    typer.Option("--app", help="Where the app is, for example tasks:app.", show_default=False),
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[
    str, typer.Option(help="text, or json: one object a line, with what failed and where.")
]
Json = Annotated[bool, typer.Option("--json", help="Output for programs, times in UTC.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

# Words such as -5 and -task:ping are values: they must get past the parser of options. That is why
# no option has a one-letter form: -task:shop would be taken for -t, -a, -s, -k and so on.
TAKES_WORDS = {"ignore_unknown_options": True}

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)?")
_SPAN_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_NUMBER = re.compile(r"-\d|-\.\d|-Infinity")


def span_of(text: str, what: str) -> float:
    """A stretch of time in seconds: `90`, `90s`, `5m`, `2h`, `3d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text!r} is not a stretch of time: write 90s, 5m, 2h or 3d")
    return float(match[1]) * _SPAN_UNITS[match[2] or "s"]


def moment_of(text: str, what: str) -> datetime:
    """A moment to come: an ISO time, in UTC unless it says."""
    if _SPAN.fullmatch(text.strip()):
        raise Refused(f"{what} {text!r} is a stretch of time; a moment is 2026-11-15T08:00Z")
    try:
        return datetime.fromtimestamp(parse_time(text.strip(), 0), UTC)
    except Refused:
        raise Refused(f"{what} {text!r} is not a moment: write 2026-11-15T08:00Z") from None


def bytes_of(text: str, what: str) -> int:
    """A size in bytes: `512M`, `2G`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Refused(f"{what} {text!r} is not a size: write 512M or 2G")
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def names_of(text: str | None) -> tuple[str, ...] | None:
    """Names between commas."""
    if text is None:
        return None
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def pairs_of(texts: list[str] | None, what: str) -> dict[str, str]:
    """`name=value`, each."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Refused(f"{what} {text!r}: write {what} name=value")
        pairs[name] = value
    return pairs


def no_stray_options(words: list[str]) -> list[str]:
    """The words, unless one is an option that does not exist."""
    for word in words:
        if word.startswith("--") or (
            word.startswith("-") and ":" not in word and not _NUMBER.match(word) and len(word) > 1
        ):
            raise typer.BadParameter(f"no such option: {word}; --help shows those there are")
    return words


def author() -> str:
    """Who is asking, for the history."""
    import getpass

    try:
        return legible(getpass.getuser())
    except (KeyError, OSError):  # no such user here, as in many containers
        return f"user {os.getuid()}"
