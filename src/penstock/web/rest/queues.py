"""Options of queues over REST: look at them, override, reset; drop a queue."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.operate.drop_queue import Dropped
from penstock.operate.queue_settings import (
    QueueOptionsJson,
    parse_options,
    queue_options_json,
)
from penstock.web.request import WebRequest


class QueueOptionsList(msgspec.Struct):
    """The options of every queue that has some."""

    queues: list[QueueOptionsJson]


class SetQueue(msgspec.Struct, forbid_unknown_fields=True):
    """Options to override, in the words of the command line: {"timeout": "10m", "running": "4"}."""

    queue: str
    options: dict[str, str] = {}
    app: str = ""
    reason: str = ""


class ResetQueue(msgspec.Struct, forbid_unknown_fields=True):
    """Names of the options whose override ends; without any, all."""

    queue: str
    options: list[str] = []
    app: str = ""
    reason: str = ""


class DropQueue(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to drop. `running`: its running jobs refuse that, or are cancelled."""

    queue: str
    app: str = ""
    running: Literal["refuse", "cancel"] = "refuse"
    reason: str = ""


def options(request: WebRequest) -> QueueOptionsList:
    found = request.store.queue_options(request.word("queue") or None)
    return QueueOptionsList([queue_options_json(record) for record in found])


def set_options(request: WebRequest) -> QueueOptionsJson:
    body = request.json(SetQueue)
    chosen = parse_options(body.options)
    return queue_options_json(request.store.set_queue(body.queue, body.app, chosen, body.reason))


def reset(request: WebRequest) -> QueueOptionsJson:
    body = request.json(ResetQueue)
    record = request.store.reset_queue(body.queue, body.app, body.options, body.reason)
    return queue_options_json(record)


def drop(request: WebRequest) -> Dropped:
    body = request.json(DropQueue)
    return request.store.drop_queue(body.queue, body.app, body.running, body.reason)
