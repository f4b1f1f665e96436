"""Operations over REST: a preview that counts, then a beginning, progress, and an end."""

from __future__ import annotations

import msgspec

from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.to_json import iso
from penstock.web.bulk_operations import NOT_HERE, Operation, Preview, preview
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
    found = asked.site.operations.get(asked.part("id"))
    if found is None:
        raise NotFound(NOT_HERE)
    return shown(found)


def cancel(asked: Asked) -> OperationJson:
    running = get(asked)
    if not asked.site.operations.cancel(asked.verbs, running.id):
        raise Conflict(f"operation {running.id} has ended: {running.state}")
    return get(asked)


def shown(operation: Operation) -> OperationJson:
    return OperationJson(
        operation.id,
        operation.verb,
        operation.filter,
        operation.author,
        operation.reason,
        operation.state,
        operation.expected,
        operation.matched,
        operation.done,
        iso(operation.began_at),
        iso(operation.ended_at),
        operation.error,
    )
