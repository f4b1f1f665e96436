"""Templates: values in, HTML out. Everything is escaped, and a name that is missing is an error.

Templates ask no store. What they show of jobs may be anything that anybody ever enqueued.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup, escape

from penstock.operate.roles import Role
from penstock.operate.to_json import call_text, iso
from penstock.operate.why import ago, moment, span
from penstock.run.error_text import headline

_FOLDER = Path(__file__).parent / "templates"


def environment() -> jinja2.Environment:
    """What all templates share."""
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
        standing=_standing,
    )
    made.globals.update(when=_when, iso=iso, span=span, moment=moment, Role=Role)  # pyright: ignore[reportArgumentType]
    return made


def _standing(place: str) -> str:
    """The filter for what a count has at a place; where rules hold jobs back, among others."""
    words = {"ready": "due:now", "scheduled": "due:later"}
    return words.get(place, "state:ready" if place in {"paused", "limited"} else f"state:{place}")


def _number(value: float) -> str:
    return f"{value:,}"


def _seconds(value: float | None) -> str:
    """A short stretch of time, such as a run, with what matters of it."""
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * max(value, 0):.0f} ms"
    return f"{value:.1f} s" if value < 60 else span(value)


def pretty(raw: bytes | None) -> str:
    """Stored JSON for people, every digit as it is stored; what is none is shown as it is."""
    if raw is None:
        return ""
    try:
        return msgspec.json.format(raw, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "backslashreplace")


def _compact(value: object) -> str:
    """A value as JSON, on one line; big numbers as they are."""
    return msgspec.json.encode(value).decode()


def _coded(text: str) -> Markup:
    """A sentence whose commands, which it has between backticks, look like commands."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # one that does not end is no command
        return escape(text)
    made = (
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
    return Markup("").join(made)


def _when(at: float | None, now: float) -> Markup:
    """A moment seen from now; the whole of it on pointing at it."""
    if at is None:
        return Markup("")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        escape(iso(at) or ""), escape(moment(at)), ago(at, now)
    )
