"""The text that a failed attempt leaves: its headline, an empty line, its traceback.

    ValueError: no such order

    Traceback (most recent call last):
      ...

The headline is the exception's class and the first line of what it says, made where the exception
is at hand: no reader has to find it in a traceback, whose last line may be anything. Whoever lists
jobs asks `headline`; Spark asks the same of a column in
`spark.pipelines.clean_attempts`. Rows of older releases begin with their traceback: of
those it is the last line.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable

LONGEST_HEADLINE = 500  # characters, as stored
SHOWN_HEADLINE = 200  # in a list
NOT_KEPT = "message not kept"
TRACEBACKS = (  # first lines of what has no headline
    "Traceback (most recent call last):",
    "+ Exception Group Traceback (most recent call last):",
    "Traceback",
    "...",
)
BLANK = " \t\n\x0b\f\r"

_CLASS = re.compile(r"[\w.<>]+")


def error_text(headline: str, traceback: str, longest: int) -> str:
    """The text to store, of at most so many bytes; what is too long of the traceback is its end."""
    head = f"{headline}\n\n".encode("utf-8", "replace")
    body = traceback.encode("utf-8", "replace")
    if len(head) + len(body) > longest:
        body = b"...\n" + body[-(longest - len(head) - 4) :].decode("utf-8", "ignore").encode()
    return (head + body).decode()


def headline(text: str | None, longest: int = SHOWN_HEADLINE) -> str:
    """The one line about a stored error, cut to so many characters; empty if there is none."""
    text = (text or "").strip(BLANK)
    first, _, rest = text.partition("\n")
    line = rest.rpartition("\n")[2] if rest and first.strip(BLANK) in TRACEBACKS else first
    return shortened(line.strip(BLANK), longest)


def traceback_in(text: str | None) -> str:
    """The traceback of a stored error, without the headline; empty if there is none."""
    first, _, rest = (text or "").strip(BLANK).partition("\n")
    return text or "" if first.strip(BLANK) in TRACEBACKS else rest.strip("\n")


def exception_in(text: str | None) -> str | None:
    """The class of a stored error, as its headline has it; None where that is a sentence."""
    name = headline(text, LONGEST_HEADLINE).partition(":")[0]
    return name if _CLASS.fullmatch(name) else None


def headline_of(error: BaseException, hide: Callable[[str], str]) -> str:
    """The headline of an exception, with `hide` asked about all that it says before it is cut."""
    lines = (line.strip() for line in hide(_said(error)).splitlines())
    first = next((line for line in lines if line), "")
    name = class_name(type(error))
    return shortened(f"{name}: {first}" if first else name, LONGEST_HEADLINE)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # as Python does, when it prints a traceback
        return "<exception str() failed>"


def not_kept(error: BaseException, key: bytes | None) -> str:
    """What stands for the message of an exception that may tell a secret.

    The digest is the same for the same message, and nobody without the store's key can compute it.
    """
    if key is None:
        return NOT_KEPT
    text = f"{class_name(type(error))}: {_said(error)}".encode("utf-8", "replace")
    return f"{NOT_KEPT}, digest {hmac.new(key, text, 'sha256').hexdigest()[:16]}"


def class_name(kind: type[BaseException]) -> str:
    """The class as Python's tracebacks have it: with its module, unless that says nothing."""
    if kind.__module__ in {"builtins", "__main__"}:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def shortened(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
