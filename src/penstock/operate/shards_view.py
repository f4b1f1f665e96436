"""Where the buckets of shards are, and what is moving: from the map and the history alone.

For pages, which know the store and not the file of shards: URLs are not here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.shard_map import Departure, ShardMap, parse_buckets, text_of_buckets
from penstock.errors import Refused

_MOST_MOVES = 20


class ShardView(NamedTuple):
    """One shard and what it has."""

    name: str
    number: int
    buckets: str  # as 0-511,600
    ranges: list[tuple[int, int]]  # where each run of them begins, and how many they are
    leaving: int  # buckets that left it, and have not come where they go


class MoveView(NamedTuple):
    """One call of `penstock shards move` or `remove`."""

    buckets: str
    to: str
    done: int
    of: int
    at: float
    author: str
    under_way: bool


class _Told(msgspec.Struct):
    """What the history has of a move."""

    buckets: str
    to: str
    says: str = ""
    author: str = ""


class ShardsView(NamedTuple):
    """All of it; without shards it is one store."""

    shards: list[ShardView]
    moves: list[MoveView]  # the newest first


def look_at_shards(broker: Broker) -> ShardsView:
    """Read the map, what is on its way, and the last moves."""
    found = broker.records(ShardMap)
    if not found:
        return ShardsView([], [])
    [shard_map] = found
    leaving: dict[str, set[int]] = {}
    for departure in broker.records(Departure):
        leaving.setdefault(departure.source, set()).update(departure.versions)
    ranges = shard_map.buckets()
    shards = [
        ShardView(
            name,
            sum(last - first + 1 for first, last in ranges.get(name, [])),
            ",".join(f"{first}-{last}" for first, last in ranges.get(name, [])),
            [(first, last - first + 1) for first, last in ranges.get(name, [])],
            len(leaving.get(name, ())),
        )
        for name in sorted({*ranges, *leaving})
    ]
    return ShardsView(shards, _moves(broker, shard_map))


def _moves(broker: Broker, shard_map: ShardMap) -> list[MoveView]:
    moves: list[MoveView] = []
    ended: set[tuple[str, str]] = set()
    for event in reversed(broker.history(None, _MOST_MOVES, kind="move")):
        try:
            told = msgspec.json.decode(event.data or b"{}", type=_Told)
            buckets = parse_buckets(told.buckets)
        except (msgspec.DecodeError, Refused):  # of another Penstock
            continue
        to = told.to
        if told.says != "begun":
            ended.add((to, told.buckets))
            continue
        done = sum(shard_map.owner(bucket) == to for bucket in buckets)
        finished = (to, told.buckets) in ended or done == len(buckets)
        moves.append(
            MoveView(
                text_of_buckets(buckets),
                to,
                len(buckets) if finished else done,
                len(buckets),
                event.at,
                told.author,
                not finished,
            )
        )
    return moves
