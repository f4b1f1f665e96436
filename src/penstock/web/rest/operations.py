"""Operations over REST: a preview that counts, then a beginning, progress, and an end."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.operate.refusals import Conflict
from penstock.operate.to_json import iso
from penstock.web.bulk_operations import Operation, Preview, preview
from penstock.web.request import Asked


class Begin(msgspec.Struct, forbid_unknown_fields=True):
    """Cancel, retry or delete whatever a filter means; the reason is kept with every job."""

    verb: str
    filter: str
    reason: str = ""


class OperationJson(msgspec.Struct):
    """How far an operation is: running, done, cancelled or failed."""

    id: str
    verb: str
    filter: str
    author: str
    reason: str
    state: str
    expected: int | None
    matched: int
    done: int
    began_at: str | None
    ended_at: str | None
    error: str | None


class OperationList(msgspec.Struct):
    """The operations that this process of the dashboard remembers, the last one first."""

    operations: list[OperationJson]


def look_ahead(asked: Asked) -> Preview:
    return preview(asked.verbs, asked.word("verb"), asked.word("q"))


def begin(asked: Asked) -> OperationJson:
    given = asked.json(Begin)
    counted = preview(asked.verbs, given.verb, given.filter)
    return shown(asked.site.operations.begin(asked.verbs, counted, given.reason))


def every(asked: Asked) -> OperationList:
    return OperationList([shown(each) for each in asked.site.operations.all()])


def get(asked: Asked) -> OperationJson:
    return shown(asked.site.operations.expected(asked.part("id")))


def cancel(asked: Asked) -> OperationJson:
    running = get(asked)
    if not asked.site.operations.cancel(asked.verbs, running.id):
        raise Conflict(f"operation {running.id} has ended: {running.state}")
    return get(asked)


def shown(operation: Operation) -> OperationJson:
    times: dict[str, Any] = {
        "began_at": iso(operation.began_at),
        "ended_at": iso(operation.ended_at),
    }
    return OperationJson(**{**msgspec.structs.asdict(operation), **times})
