"""Reads in slices over shards: a slice is of one shard, whose name its ends begin with.

    b/00000000000000000012        up to there in the history of shard b

A position has a part for each shard, as everywhere. A scan gives rows with the positions that their
own shard counts by: whoever needs to tell them apart plans each shard's slices by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import HISTORY, Reach, Selection, Slice
from penstock.brokers.sharded.positions import Places, read_position
from penstock.brokers.sharded.shards import Shard, Shards
from penstock.errors import Refused


class ShardedScans:
    """Reach, slices and scan; a shard that is away is an error, as rows would be left out."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,
        *,
        until: Position | None = None,
    ) -> Reach:
        names = self._shards.named
        begin = read_position(after, names)
        end = None if until is None else read_position(until, names)
        parts: dict[str, Position] = {}
        left = at_most if at_most is None else max(at_most, 1)
        for name, shard in names.items():
            last = None if end is None else end.of(name)
            look = _Look(shard, selection, begin.of(name), last)
            if left == 0:
                parts[name] = begin.of(name)
                continue
            reach = look.reach(left, patience)
            parts[name] = reach.position
            if left is not None:
                left = 0 if reach.full else left - look.rows(left)
        return Reach(self._shards.map.fleet, _position(parts, begin, after), full=left == 0)

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        names = self._shards.named
        if selection.table not in HISTORY:
            after, until = BEGINNING, None
        begin = read_position(after, names)
        end = None if until is None else read_position(until, names)
        each = max(1, at_most // len(names))
        found: list[Slice] = []
        for name, shard in names.items():
            low, high = begin.of(name), None if end is None else end.of(name)
            cut = shard.call(
                lambda store, low=low, high=high: store.slices(selection, low, high, each)
            )
            found += [
                Slice(part.selection, f"{name}/{part.after}", f"{name}/{part.until}")
                for part in cut
            ]
        return found

    def scan(self, part: Slice) -> Iterator[Any]:
        name, own = of_shard(part)
        if name not in self._shards.named:
            raise Refused(f"{part.after!r} is no end of a slice of {', '.join(self._shards.named)}")
        return self._shards.named[name].call(lambda store: store.scan(own))


def of_shard(part: Slice) -> tuple[str, Slice]:
    """The name of the shard that a slice is of, and the slice as that shard made it."""
    name, after = _taken_apart(part.after)
    other, until = _taken_apart(part.until)
    if name != other:
        raise Refused(f"{part.after!r} and {part.until!r} are not the ends of one slice")
    return name, Slice(part.selection, after, until)


def _taken_apart(end: str) -> tuple[str, str]:
    name, slash, rest = end.partition("/")
    if not slash:
        raise Refused(f"{end!r} is no end of a slice: one begins with the name of its shard")
    return name, rest


class _Look:
    """How far the history of one shard may be read, and how many rows are up to there."""

    def __init__(
        self,
        shard: Shard,
        selection: Selection,
        after: Position,
        until: Position | None,
    ) -> None:
        self._shard = shard
        self._selection = selection
        self._after = after
        self._until = until

    def reach(self, at_most: int | None, patience: float) -> Reach:
        return self._shard.call(
            lambda store: store.reach(
                self._selection, self._after, at_most, patience, until=self._until
            )
        )

    def rows(self, fewer_than: int) -> int:
        """How many rows there are, if they are fewer than this: found by halving."""
        low, high = 0, fewer_than
        step = 1
        while low + step < high:  # from below: mostly there are few
            if not self.reach(low + step, 0).full:
                high = low + step
                break
            low, step = low + step, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.reach(middle, 0).full else (low, middle)
        return low


def _position(parts: dict[str, Position], begin: Places, after: Position) -> Position:
    """These parts as one position; `after` itself where nothing is behind it."""
    return after if parts == begin.parts else str(Places(parts))
