"""Audit: who did what to a store, when and why, read backwards out of its history.

The history has a row for every act of a person, among many that workers wrote by themselves; those
are left out here. So are the rows of single jobs where the act was on many of them (a flow, or all
that a filter means): it has a row of its own, which says how many. A look is bounded, and says how
far it went: whoever goes on from there misses nothing.
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
from penstock.operate.to_json import decoded, iso
from penstock.schedules.schedule import RUN_NOW

KINDS = (
    *("cancel", "retry", "delete", "signal", *RECORDED),
    *("rule", "schedule", "flow", "lake"),
)
MOST_LOOKED = 5_000  # rows of one look
_PAGE = 200
_MOST_OPERATIONS = 1_000
OPERATION = "operation"
STOP = "stop"
_SLACK_SECONDS = 60.0  # how far the times of rows may be out of the order they were committed in
_OF_FLOWS = frozenset({"cancel", "retry", "delete"})


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which deeds are wanted. Empty means any."""

    kinds: tuple[str, ...] = ()
    author: str = ""
    since: float | None = None
    until: float | None = None


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody did."""

    position: Position
    at: float
    kind: str
    author: str  # empty: a program that did not say who
    reason: str
    job: str | None = None
    queue: str | None = None
    task: str | None = None
    says: dict[str, Any] = {}  # what else the history has of it


class Deeds(msgspec.Struct, frozen=True):
    """Deeds, newest first. `before` goes into the next look; None: there is no more."""

    deeds: list[Deed]
    before: Position | None = None
    looked: int = 0  # rows
    back_to: float | None = None  # the time of the last row that was looked at


def read_audit(
    broker: Broker,
    wanted: AuditQuery,
    before: Position | None = None,
    limit: int = 100,
    most_looked: int = MOST_LOOKED,
) -> Deeds:
    """What was done before this position, newest first."""
    kinds = [kind for kind in KINDS if not wanted.kinds or kind in wanted.kinds]
    deeds: list[Deed] = []
    looked, last, ended = 0, None, _Ended(broker)
    for row in _newest_first(broker, kinds, before, wanted.since, min(limit, _PAGE)):
        if len(deeds) >= limit or looked >= most_looked:
            return Deeds(deeds, None if last is None else last.position, looked, last and last.at)
        looked, last = looked + 1, row
        deed = _deed(row, ended)
        if deed is not None and _matches(deed, wanted):
            deeds.append(deed)
    return Deeds(deeds, None, looked, last and last.at)


def deed_json(deed: Deed) -> dict[str, Any]:
    """A deed for programs."""
    return {**msgspec.structs.asdict(deed), "at": iso(deed.at)}


def audit_query(
    kinds: Collection[str], author: str, since: str | None, until: str | None, now: float
) -> AuditQuery:
    """Which deeds somebody asks for, with times as people write them."""
    for kind in kinds:
        if kind not in KINDS:
            raise Refused(f"{kind!r}: no such kind; there are {', '.join(KINDS)}")
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


class _Ended:
    """Operations that have a row of their own: asked for once, if at all."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @cached_property
    def ids(self) -> set[str]:
        rows = self._broker.history(None, _MOST_OPERATIONS, kind=OPERATION)
        told = [_told(row) for row in rows]
        return {f"{OPERATION} {each.get(OPERATION)}" for each in told if each.get("verb") != STOP}


def _deed(row: Event, ended: _Ended) -> Deed | None:
    """What somebody did; None for what a store or a worker wrote by itself."""
    told = _told(row)
    if not _of_a_person(row.kind, told, ended):
        return None
    author, reason = str(told.pop("author", "") or ""), str(told.pop("reason", "") or "")
    return Deed(
        position=row.position,
        at=row.at,
        kind=row.kind,
        author=author,
        reason=reason,
        job=row.job or told.pop("job", None),
        queue=row.queue or told.get("queue"),
        task=row.task or told.get("task"),
        says={name: value for name, value in told.items() if value not in (None, "", {}, [])},
    )


def _told(row: Event) -> dict[str, Any]:
    data = decoded(row.data)
    return dict(data) if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownArgumentType]


def _of_a_person(kind: str, told: dict[str, Any], ended: _Ended) -> bool:
    part_of = str(told.get("part_of", ""))
    if part_of:
        # Of an operation that is under way, or was killed, each job tells for itself.
        return part_of.startswith(f"{OPERATION} ") and part_of not in ended.ids
    match kind:
        case "flow":
            return told.get("says") in _OF_FLOWS
        case "schedule":
            return "slot" not in told or told.get("says") == RUN_NOW
        case "cancel":  # one that expired, or whose need failed, nobody asked to
            return "author" in told
        case _:
            return True


def _matches(deed: Deed, wanted: AuditQuery) -> bool:
    return (
        (not wanted.author or deed.author == wanted.author)
        and (wanted.since is None or deed.at >= wanted.since)
        and (wanted.until is None or deed.at <= wanted.until)
    )
