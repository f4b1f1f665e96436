"""Positions over shards: how far each shard's history was read, and whose row was the last.

    a=00000000000000000012,b=0/a

Names are in one order, and each part has the leading zeros of its store: so positions of one
reading, compared as texts, are in its order.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.broker.position import BEGINNING, Position, foreign
from penstock.broker.views import Event
from penstock.brokers.positions import number_of, position_text

_PART = r"[a-z][a-z0-9_-]*=[0-9]+"
_FORM = re.compile(rf"(?P<parts>{_PART}(?:,{_PART})*)(?:/(?P<own>[a-z][a-z0-9_-]*))?")


class Places(NamedTuple):
    """A position, taken apart."""

    parts: Mapping[str, Position]  # of each shard: up to and with this row
    own: str = ""  # the shard whose row this is the position of

    def of(self, shard: str) -> Position:
        return self.parts.get(shard, BEGINNING)

    def end_for(self, shard: str) -> Position:
        """What a shard is asked for rows before: its own rows only up to this one."""
        part = self.of(shard)
        return part if shard == self.own else position_text(number_of(part) + 1)

    def __str__(self) -> str:
        parts = ",".join(f"{name}={self.parts[name]}" for name in sorted(self.parts))
        return f"{parts}/{self.own}" if self.own else parts


def read_position(position: Position, shards: Collection[str]) -> Places:
    """A position that was handed out before; anything else is refused."""
    if position == BEGINNING:
        return Places(dict.fromkeys(shards, BEGINNING))
    found = _FORM.fullmatch(position)
    parts = dict(part.split("=") for part in found["parts"].split(",")) if found else {}
    own = (found and found["own"]) or ""
    # Parts of shards that were removed since are passed over.
    if found is None or not (parts.keys() & {*shards}):
        raise foreign(position, f"one has a part for each shard, as in {min(shards)}={BEGINNING}")
    known = {name: part for name, part in parts.items() if name in shards}
    return Places(dict.fromkeys(shards, BEGINNING) | known, own if own in shards else "")


def in_order(rows: Mapping[str, Sequence[Event]]) -> Iterable[tuple[str, Event]]:
    """Rows of several shards by their times; those of one shard stay in their order."""
    named = [[(name, row) for row in of_shard] for name, of_shard in sorted(rows.items())]
    return heapq.merge(*named, key=lambda each: each[1].at)


def behind(places: Places, rows: Mapping[str, Sequence[Event]]) -> list[Event]:
    """These rows, which are behind a position, in their order, each with its own."""
    parts = dict(places.parts)
    found: list[Event] = []
    for name, row in in_order(rows):
        parts[name] = row.position
        found.append(placed(row, parts, name))
    return found


def last(shards: Collection[str], rows: Mapping[str, Sequence[Event]], limit: int) -> list[Event]:
    """The last of these rows, oldest first, each with its position."""
    parts = {
        name: position_text(number_of(rows[name][0].position) - 1) if rows.get(name) else BEGINNING
        for name in shards
    }
    found: list[Event] = []
    for name, row in in_order(rows):
        parts[name] = row.position
        found.append(placed(row, parts, name))
    return found[max(0, len(found) - limit) :]


def placed(row: Event, parts: Mapping[str, Position], own: str) -> Event:
    return msgspec.structs.replace(row, position=str(Places(parts, own)))
