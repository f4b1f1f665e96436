"""Options of queues as people type them, and as programs read them.

The words are those of `app.queue(...)`: `timeout=60s`, `retry=limit=5,delay=30s`, `running=4`;
`none` takes an option away that the program declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import msgspec

from penstock.broker.queue_options import (
    FOREVER,
    NOTHING,
    OPTION_NAMES,
    Options,
    QueueOptions,
    check_option,
)
from penstock.enqueue.codec import RetryWire
from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration, parse_integer, parse_pair
from penstock.operate.to_json import iso
from penstock.rules.limits import parse_rate
from penstock.task.option_checks import check_crash_budget, check_timeout
from penstock.task.retry import Repeat, Retry

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

_MOST_RUNNING = 2**31 - 1


class QueueOptionsJson(TypedDict):
    """The options of a queue: declared by its program, set by an operator, and what holds."""

    queue: str
    app: str
    declared: dict[str, Any]
    declared_at: str | None
    code: str
    override: dict[str, Any]
    author: str
    reason: str
    set_at: str | None
    effective: dict[str, Any]


def queue_options_json(record: QueueOptions) -> QueueOptionsJson:
    """The options of a queue, for programs; times in seconds are numbers."""
    return {
        "queue": record.queue,
        "app": record.app,
        "declared": _plain(record.declared),
        "declared_at": iso(record.declared_at or None),
        "code": record.code,
        "override": _plain(record.override),
        "author": record.author,
        "reason": record.reason,
        "set_at": iso(record.set_at or None),
        "effective": _plain(record.effective),
    }


def _plain(options: Options | None) -> dict[str, Any]:
    return msgspec.to_builtins((options or NOTHING).said)


def parse_options(pairs: Mapping[str, str]) -> Options:
    """The options that these words set."""
    said = {check_option(name): _parse(name, text.strip()) for name, text in pairs.items()}
    return Options(**said)


def parse_option_words(words: list[str]) -> Options:
    """The options of `NAME=VALUE` words."""
    return parse_options(dict(parse_pair(word, "an option") for word in words))


def _parse(name: str, text: str) -> Any:
    if text == "none":
        return None
    return _PARSERS[name](name, text)


def _seconds(name: str, text: str) -> float:
    return parse_duration(text, name)


def _timeout(name: str, text: str) -> float | None:
    return check_timeout(parse_duration(text, name))


def _strategy(name: str, text: str) -> Any:
    if text in {"keep", "delete"}:
        return text
    word, _, fields = text.partition(":")
    if word != "repeat":
        raise Refused(f"{name}={text!r}: keep, delete, or repeat:limit=2,delay=30s,then=keep")
    return Repeat(**_fields(name, fields, ("limit", "delay", "then")))


def _retry(name: str, text: str) -> RetryWire:
    fields = _fields(name, text, RetryWire.__struct_fields__)
    Retry(**fields)  # its own refusals
    return RetryWire(**fields)


def _fields(name: str, text: str, known: tuple[str, ...]) -> dict[str, Any]:
    """`limit=2,delay=30s` as the fields of a Retry or a Repeat."""
    fields: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        field, value = parse_pair(word, name)
        if field not in known:
            raise Refused(f"{name}: {field!r} is not one of {', '.join(known)}")
        if field == "then":
            fields[field] = value
        elif field == "limit":
            fields[field] = (
                None if value == "none" else parse_integer(value, f"{name}: limit", 0, 10**9)
            )
        elif field in {"factor", "jitter"}:
            try:
                fields[field] = float(value)
            except ValueError:
                raise Refused(f"{name}: {field}={value!r} is not a number") from None
        else:
            fields[field] = parse_duration(value, f"{name}: {field}")
    return fields


def _order(name: str, text: str) -> Any:
    orders = get_args(Literal["wait", "skip", "batch", "fair"])
    if text not in orders:
        raise Refused(f"{name}={text!r}: {', '.join(orders)} or none")
    return text


def _flag(name: str, text: str) -> bool:
    if text not in {"yes", "no"}:
        raise Refused(f"{name}={text!r}: yes or no")
    return text == "yes"


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "lease": _seconds,
    "keep": lambda name, text: FOREVER if text == "forever" else _seconds(name, text),
    "timeout": _timeout,
    "retry": _retry,
    **dict.fromkeys(("on_success", "on_error", "on_timeout"), _strategy),
    "crash_budget": lambda name, text: check_crash_budget(parse_integer(text, name, 0, 10**9)),
    "order": _order,
    "running": lambda name, text: parse_integer(text, name, 0, _MOST_RUNNING),
    "rate": lambda _, text: parse_rate(text),
    **dict.fromkeys(("per_key", "relaxed"), _flag),
}
assert set(_PARSERS) == set(OPTION_NAMES)  # noqa: S101  at import: a new option needs its words


def options_of_queues(broker: Broker, queue: str | None = None) -> list[QueueOptions]:
    """The options of every queue, or of those of this name."""
    kept = broker.records(QueueOptions)
    return [record for record in kept if queue is None or record.queue == queue]
