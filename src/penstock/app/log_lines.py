"""Log lines on stderr: of the command line, and of every process that a worker starts.

As text for people, in colour on a terminal; or one JSON object a line, for programs. A program that
runs a `Worker` in its own process configures logging itself, and none of this is used.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import IO, Any, NamedTuple

import msgspec

from penstock.errors import Refused

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

# What a record about a failed attempt has beside what every record has.
FAILURE = (
    "task",
    "job_id",
    "attempt",
    "queue",
    "reason",
    "exception",
    "place",
    "error",
    "traceback",
    "retry_at",
)
_TEXT = "%(asctime)s %(levelname)-7s %(process)d %(message)s"
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
# Control characters in a job's text must not reach the terminal. Nor those that change the
# direction of text: U+202E shows what follows it backwards, so that a name looks like another one.
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL_PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys((*range(0x7F, 0xA0), *_BIDI), 0xFFFD),
}
# JSON may be shown on a terminal, too; escaped it is the same value for programs.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_BIDI)}


class LogOutput(NamedTuple):
    """What a process logs, and how; passed on to the processes that it starts."""

    level: str = "info"
    format: str = "text"


_output: LogOutput | None = None
_json_handler: logging.Handler | None = None  # where they go, if they are JSON


def legible(text: str) -> str:
    """The text without characters that a terminal obeys."""
    return text.translate(_CONTROL_PICTURES)


def legible_json(encoded: bytes) -> str:
    """JSON in which characters that a terminal obeys are escaped: the same value."""
    return encoded.decode().translate(_ESCAPES)


def log_to_stderr(output: LogOutput) -> None:
    """Have log lines of this level and above on stderr, unless logging is configured already."""
    global _output, _json_handler  # noqa: PLW0603  as logging itself: one per process
    level, form = output.level.lower(), output.format.lower()
    if level not in LEVELS:
        raise Refused(f"--log-level {output.level!r}: debug, info, warning or error")
    if form not in FORMATS:
        raise Refused(f"--log-format {output.format!r}: text or json")
    _output = LogOutput(level, form)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines(sys.stderr))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    _json_handler = handler if form == "json" else None


def log_output() -> LogOutput | None:
    """The log settings of this process; None: the program around it configures logging."""
    return _output


def put_line(text: str, level: int = logging.INFO) -> bool:
    """Where lines are JSON, put this among them, whatever the level; False where they are text."""
    if _json_handler is None:
        return False
    _json_handler.handle(logging.LogRecord("penstock", level, "", 0, "%s", (text,), None))
    return True


class TextLines(logging.Formatter):
    """A line for people, and a traceback below it; in colour on a terminal that wants any."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__(_TEXT)
        self._coloured = _wants_colour(stream)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # Other libraries may colour their lines themselves.
        if record.name.startswith("penstock") or hasattr(record, "job_id"):
            text = legible(text)
        if not self._coloured:
            return text
        line, newline, below = text.partition("\n")
        head, mark, message = line.partition(f" {record.process} ")
        colour = _COLOURS.get(record.levelno)
        coloured = f"\x1b[{colour}m{message}\x1b[0m" if colour else message
        return f"\x1b[2m{head}{mark}\x1b[0m{coloured}{newline}{below}"


class JsonLines(logging.Formatter):
    """A JSON object: time, level, logger, process, message; more of a failed attempt."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if hasattr(record, "job_id"):
            line |= {
                ("id" if name == "job_id" else name): getattr(record, name, None)
                for name in FAILURE
            }
            line["retry_at"] = None if line["retry_at"] is None else _iso(line["retry_at"])
        elif hasattr(record, "more"):
            line |= {name: getattr(record, name, None) for name in ("task", "exception", "more")}
        elif record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return legible_json(msgspec.json.encode(_encodable(line)))


def _encodable(line: dict[str, Any]) -> dict[str, Any]:
    """With text that UTF-8 cannot encode, such as half of a surrogate pair, replaced."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in line.items()
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _wants_colour(stream: IO[str] | None) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream is not None and stream.isatty()
