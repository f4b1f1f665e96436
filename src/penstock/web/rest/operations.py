"""Operations by filter over REST: preview, begin, progress, cancel."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.operate.to_json import iso
from penstock.web.bulk_operations import Operation, Preview, preview
from penstock.web.request import WebRequest


class Begin(msgspec.Struct, forbid_unknown_fields=True):
    """Cancel, retry or delete all jobs that match a filter; the reason is kept with every job."""

    verb: str
    filter: str
    reason: str = ""


class OperationJson(msgspec.Struct):
    """An operation; its state is running, done, cancelled or failed."""

    id: str
    verb: str
    filter: str
    author: str
    reason: str
    state: str
    expected: int | None
    matched: int
    done: int
    secrets_gone: int
    began_at: str | None
    ended_at: str | None
    error: str | None


class OperationList(msgspec.Struct):
    """The operations that this process of the dashboard remembers, newest first."""

    operations: list[OperationJson]


def show_preview(request: WebRequest) -> Preview:
    return preview(request.store, request.word("verb"), request.word("q"))


def begin(request: WebRequest) -> OperationJson:
    given = request.json(Begin)
    counted = preview(request.store, given.verb, given.filter)
    return shown(request.site.operations.begin(request.store, counted, given.reason))


def list_all(request: WebRequest) -> OperationList:
    return OperationList([shown(each) for each in request.site.operations.all(request.person)])


def get(request: WebRequest) -> OperationJson:
    return shown(request.site.operations.expected(request.part("id"), request.person))


def cancel(request: WebRequest) -> OperationJson:
    return shown(request.site.operations.cancel(request.store, request.part("id")))


def shown(operation: Operation) -> OperationJson:
    times: dict[str, Any] = {
        "began_at": iso(operation.began_at),
        "ended_at": iso(operation.ended_at),
    }
    return OperationJson(**{**msgspec.structs.asdict(operation), **times})
