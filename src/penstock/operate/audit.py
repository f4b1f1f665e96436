"""Audit: who did what to a store, when and why; the actions of people in its history, newest first.

Rows that stores and workers wrote by themselves are left out. So are the rows of single jobs where
a person acted on many (a flow, or all that match a filter): that action has a row of its own, with
the number of jobs. A read is bounded and returns the position at which the next one goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

import msgspec

from penstock.broker.filter import parse_time
from penstock.broker.position import Position
from penstock.broker.protocol import Broker
from penstock.broker.views import RECORDED, Event
from penstock.errors import Refused
from penstock.operate.to_json import event_data, iso
from penstock.schedules.schedule import RUN_NOW

KINDS = (
    *("cancel", "retry", "delete", "signal", *RECORDED),
    *("rule", "queue", "schedule", "subscription", "worker", "environment", "flow", "lake"),
)
MOST_LOOKED = 5_000  # rows of one read
_PAGE = 200
_MOST_OPERATIONS = 1_000
OPERATION = "operation"
STOP = "stop"
_SLACK_SECONDS = 60.0  # how far the times of rows may be out of the order they were committed in
_FLOW_ACTIONS = frozenset({"cancel", "retry", "delete"})


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to read. Empty means any."""

    kinds: tuple[str, ...] = ()
    author: str = ""
    since: float | None = None
    until: float | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a person."""

    position: Position
    at: float
    kind: str
    author: str  # empty: a program that gave no author
    reason: str
    login: str | None = None  # of the database: who wrote it, whatever the author says
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    says: dict[str, Any] = {}  # what else the history row has


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, newest first. `before` goes into the next read; None: there is no more."""

    entries: list[AuditEntry]
    before: Position | None = None
    looked: int = 0  # rows
    back_to: float | None = None  # the time of the last row that was read


def read_audit(
    broker: Broker,
    wanted: AuditQuery,
    before: Position | None = None,
    limit: int = 100,
    most_looked: int = MOST_LOOKED,
) -> AuditPage:
    """Entries before this position, newest first."""
    kinds = [kind for kind in KINDS if not wanted.kinds or kind in wanted.kinds]
    entries: list[AuditEntry] = []
    looked, last, recorded = 0, None, _RecordedOperations(broker)
    for row in _newest_first(broker, kinds, before, wanted.since, min(limit, _PAGE)):
        if len(entries) >= limit or looked >= most_looked:
            return AuditPage(
                entries, None if last is None else last.position, looked, last and last.at
            )
        looked, last = looked + 1, row
        entry = _entry(row, recorded)
        if entry is not None and _matches(entry, wanted):
            entries.append(entry)
    return AuditPage(entries, None, looked, last and last.at)


def audit_entry_json(entry: AuditEntry) -> dict[str, Any]:
    """An entry for programs."""
    return {**msgspec.structs.asdict(entry), "at": iso(entry.at)}


def audit_query(
    kinds: Collection[str], author: str, since: str | None, until: str | None, now: float
) -> AuditQuery:
    """A query from input; times as `parse_time` takes them."""
    for kind in kinds:
        if kind not in KINDS:
            raise Refused(f"kind {kind!r} does not exist; the kinds are {', '.join(KINDS)}")
    times = [parse_time(text, now) if text else None for text in (since, until)]
    return AuditQuery(kinds=tuple(kinds), author=author, since=times[0], until=times[1])


def _newest_first(
    broker: Broker, kinds: list[str], before: Position | None, since: float | None, page: int
) -> Iterator[Event]:
    while rows := broker.history(None, page, kind=kinds, before=before):
        for row in reversed(rows):
            if since is not None and row.at < since - _SLACK_SECONDS:
                return
            yield row
        if len(rows) < page:
            return
        before, page = rows[0].position, _PAGE


class _RecordedOperations:
    """Ids of the bulk operations that have a row of their own; read once, if at all."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @cached_property
    def ids(self) -> set[str]:
        rows = self._broker.history(None, _MOST_OPERATIONS, kind=OPERATION)
        found = [event_data(row) for row in rows]
        return {f"{OPERATION} {data.get(OPERATION)}" for data in found if data.get("verb") != STOP}


def _entry(row: Event, recorded: _RecordedOperations) -> AuditEntry | None:
    """The entry of a row; None if a store or a worker wrote it by itself."""
    data = event_data(row)
    if not _done_by_a_person(row.kind, data, recorded):
        return None
    author, reason = str(data.pop("author", "") or ""), str(data.pop("reason", "") or "")
    return AuditEntry(
        position=row.position,
        at=row.at,
        kind=row.kind,
        author=author,
        reason=reason,
        login=row.login,
        job=row.job or data.pop("job", None),
        queue=row.queue or data.get("queue"),
        task=row.task or data.get("task"),
        says={name: value for name, value in data.items() if value not in (None, "", {}, [])},
    )


def _done_by_a_person(kind: str, data: dict[str, Any], recorded: _RecordedOperations) -> bool:
    part_of = str(data.get("part_of", ""))
    if part_of:
        # An operation that still runs, or was killed, has no row: the rows of its jobs are shown.
        return part_of.startswith(f"{OPERATION} ") and part_of not in recorded.ids
    match kind:
        case "flow":
            return data.get("says") in _FLOW_ACTIONS
        case "queue" | "environment":  # a program declared it, or was the first to run jobs
            return data.get("says") != "declared"
        case "schedule":
            return "slot" not in data or data.get("says") == RUN_NOW
        case "cancel":  # without an author it expired, or its need failed
            return "author" in data
        case _:
            return True


def _matches(entry: AuditEntry, wanted: AuditQuery) -> bool:
    return (
        (not wanted.author or entry.author == wanted.author)
        and (wanted.since is None or entry.at >= wanted.since)
        and (wanted.until is None or entry.at <= wanted.until)
    )
