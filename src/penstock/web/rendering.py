"""Templates: values in, HTML out. Everything is escaped, and an undefined name is an error.

Templates do not read the store. Names and arguments of jobs are untrusted text.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup, escape

from penstock.operate.roles import Role
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.time_text import duration_text, relative_time, time_text
from penstock.operate.to_json import call_text, iso
from penstock.rules.rule import Rule
from penstock.run.error_text import headline
from penstock.web.flow_drawing import count_text

_FOLDER = Path(__file__).parent / "templates"


def environment() -> jinja2.Environment:
    """The Jinja environment of all templates: filters and globals."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=_number,
        seconds=_seconds,
        json=pretty,
        tojson=_compact,
        headline=headline,
        coded=_coded,
        quoted=shlex.quote,
        call_text=call_text,
        count_filter=_count_filter,
    )
    shared: dict[str, object] = {
        "when": _when,
        "iso": iso,
        "duration_text": duration_text,
        "time_text": time_text,
        "Role": Role,
        "undo_path": _undo_path,
        "count_text": count_text,
    }
    made.globals.update(shared)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return made


def _undo_path(rule: Rule) -> str:
    """Where the form that removes a rule is sent."""
    return f"/rules/{CLEAR_OPERATIONS[rule.kind].replace('_', '-')}"


def _count_filter(place: str) -> str:
    """The filter that finds the jobs behind a count; paused and limited jobs are ready ones."""
    words = {"ready": "due:now", "scheduled": "due:later"}
    return words.get(place, "state:ready" if place in {"paused", "limited"} else f"state:{place}")


def _number(value: float) -> str:
    return f"{value:,}"


def _seconds(value: float | None) -> str:
    """A duration with a sensible precision: `12 ms`, `3.4 s`, `2 min 5 s`."""
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * max(value, 0):.0f} ms"
    return f"{value:.1f} s" if value < 60 else duration_text(value)


def pretty(raw: bytes | None) -> str:
    """Stored JSON, indented, numbers to the digit; what is not JSON is shown as it is."""
    if raw is None:
        return ""
    try:
        return msgspec.json.format(raw, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "backslashreplace")


def _compact(value: object) -> str:
    """A value as JSON, on one line."""
    return msgspec.json.encode(value).decode()


def _coded(text: str) -> Markup:
    """A sentence with its `commands` between backticks as code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # an unmatched backtick
        return escape(text)
    made = (
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )
    return Markup("").join(made)


def _when(at: float | None, now: float) -> Markup:
    """A time relative to now, with the full time as its tooltip."""
    if at is None:
        return Markup("")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        escape(iso(at) or ""), escape(time_text(at)), relative_time(at, now)
    )
