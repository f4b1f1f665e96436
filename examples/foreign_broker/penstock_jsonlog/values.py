"""Values of the protocol as JSON, each under the name of its class, and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from penstock.broker.lake_mark import Gap, Mark
from penstock.broker.values import Batch, Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.flows.flow import Flow, Node
from penstock.job import Fault, Job, Lane, Outcome, Parcel, State, Unique
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Decision, Last, Schedule

CLASSES: dict[str, Any] = {
    known.__name__: known
    for known in (
        *(Batch, Decision, Fault, Flow, Gap, Job, Lane, Last, Mark, Node, Note, Outcome, Parcel),
        *(Rule, RuleKind, Schedule, State, Unique, Wanted, WorkerRow),
    )
}
# Fields of a job that mean something only in the process that holds it.
OF_THIS_PROCESS = {"given", "lease", "owner", "provisional"}


def to_line(value: Any) -> bytes:
    return json.dumps(_plain(value), separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> Any:
    return _value(json.loads(line))


def _plain(value: Any) -> Any:
    """Text, numbers and lists are JSON; all else is an object of one member, which names it."""
    match value:
        case None | str() | int() | float() if not isinstance(value, Enum):
            plain = value
        case msgspec.Struct():
            plain = {type(value).__name__: _fields(value)}
        case Enum():
            plain = {type(value).__name__: value.value}
        case bytes():
            plain = {"bytes": b64encode(value).decode()}
        case type():
            plain = {"class": value.__name__}
        case Mapping():
            plain = {"dict": {name: _plain(item) for name, item in value.items()}}
        case tuple() | set() | frozenset():
            name = "tuple" if isinstance(value, tuple) else "frozenset"
            plain = {name: [_plain(item) for item in value]}
        case _:
            plain = [_plain(item) for item in value]
    return plain


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    names = [name for name in value.__struct_fields__ if name not in OF_THIS_PROCESS]
    return {name: _plain(getattr(value, name)) for name in names}


def _value(plain: Any) -> Any:
    match plain:
        case {"bytes": text}:
            value = b64decode(text)
        case {"class": name}:
            value = CLASSES[name]
        case {"dict": members}:
            value = {name: _value(item) for name, item in members.items()}
        case {"tuple": items}:
            value = tuple(_value(item) for item in items)
        case {"frozenset": items}:
            value = frozenset(items)
        case dict():
            [(name, inner)] = plain.items()
            known = CLASSES[name]
            if issubclass(known, Enum):
                value = known(inner)
            else:
                value = known(**{field: _value(item) for field, item in inner.items()})
        case list():
            value = [_value(item) for item in plain]
        case _:
            value = plain
    return value
