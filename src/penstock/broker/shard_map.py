"""Which shard has which bucket, what moves between them, and what goes to several at once.

A shard is a store that is one of several used as one. Each keeps a copy of the whole map, under its
own name: so that a store is never taken for another, and is not used by itself.

A bucket has a version: how often it moved. Of two copies the one with the higher version is right
about a bucket, and only the store that a bucket leaves, or comes to, changes its copy, in the
transaction that takes its jobs out, or in. So no two movers can disagree, and nobody decides for
all shards. A copy's epoch counts its own changes: a write that was planned with a lower one is
refused by that store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import msgspec

from penstock.enqueue.ids import BUCKETS
from penstock.errors import Refused

MAP_ID = "map"  # a store has one
V = TypeVar("V", str, int)


class ShardMap(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Buckets to names of shards. Of two maps of a fleet the one with the higher epoch holds."""

    fleet: str  # an id that all shards of one map share
    shard: str  # the name of the store that keeps this copy
    epoch: int = 1
    ranges: tuple[tuple[int, str], ...]  # from this bucket on, up to the next range: the shard
    versions: tuple[tuple[int, int], ...] = ((0, 0),)  # likewise: how often these buckets moved

    @property
    def id(self) -> str:
        return MAP_ID

    def owner(self, bucket: int) -> str:
        """The name of the shard that has this bucket."""
        return self.ranges[bisect_right(self._firsts, bucket) - 1][1]

    def version(self, bucket: int) -> int:
        """How often this bucket moved."""
        return self.versions[bisect_right(self._versioned, bucket) - 1][1]

    def moved(self, buckets: Collection[int], versions: Mapping[int, int], to: str) -> ShardMap:
        """The next copy: these buckets are on this shard, at these versions."""
        return self._with(
            [to if bucket in buckets else self.owner(bucket) for bucket in range(BUCKETS)],
            [versions.get(bucket, self.version(bucket)) for bucket in range(BUCKETS)],
            self.epoch + 1,
        )

    def joined(self, other: ShardMap) -> ShardMap:
        """What both copies know, bucket by bucket."""
        if self.ranges == other.ranges and self.versions == other.versions:
            return self if self.epoch >= other.epoch else other.of(self.shard)
        both = zip(self.of_each, other.of_each, strict=True)
        newer = [ours if ours[1] >= theirs[1] else theirs for ours, theirs in both]
        return self._with(
            [owner for owner, _ in newer],
            [version for _, version in newer],
            max(self.epoch, other.epoch),
        )

    def _with(self, owners: Sequence[str], versions: Sequence[int], epoch: int) -> ShardMap:
        return msgspec.structs.replace(
            self, epoch=epoch, ranges=_ranges(owners), versions=_ranges(versions)
        )

    def of(self, shard: str) -> ShardMap:
        """The copy that another of its shards keeps."""
        return msgspec.structs.replace(self, shard=shard)

    def agrees(self, other: ShardMap) -> bool:
        """Whether both say the same, whoever keeps them."""
        return self.of("") == other.of("")

    @property
    def names(self) -> list[str]:
        """The shards that have buckets, sorted."""
        return sorted({name for _, name in self.ranges})

    def buckets(self) -> dict[str, list[tuple[int, int]]]:
        """The first and the last bucket of each range, by shard."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in self.names}
        for (first, name), (behind, _) in pairwise([*self.ranges, (BUCKETS, "")]):
            found[name].append((first, behind - 1))
        return found

    @cached_property
    def of_each(self) -> list[tuple[str, int]]:
        """The owner and the version of each bucket."""
        return list(zip(_spread(self.ranges), _spread(self.versions), strict=True))

    @cached_property
    def _versioned(self) -> list[int]:
        return [first for first, _ in self.versions]

    @cached_property
    def _firsts(self) -> list[int]:
        return [first for first, _ in self.ranges]


def even_ranges(names: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """All buckets in as many parts as there are names, about equal."""
    return tuple((BUCKETS * place // len(names), name) for place, name in enumerate(names))


def _ranges(values: Sequence[V]) -> tuple[tuple[int, V], ...]:
    """The first bucket of each run of equal values."""
    return tuple(
        (bucket, value)
        for bucket, value in enumerate(values)
        if not bucket or value != values[bucket - 1]
    )


def _spread(runs: Sequence[tuple[int, V]]) -> list[V]:
    """The value of each bucket."""
    ends = [first for first, _ in runs[1:]] + [BUCKETS]
    return [
        value for (first, value), end in zip(runs, ends, strict=True) for _ in range(first, end)
    ]


def text_of_buckets(buckets: Collection[int]) -> str:
    """Buckets as people write them: 0-511,600."""
    runs: list[list[int]] = []
    for bucket in sorted(buckets):
        if runs and bucket == runs[-1][1] + 1:
            runs[-1][1] = bucket
        else:
            runs.append([bucket, bucket])
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in runs)


def parse_buckets(text: str) -> list[int]:
    """Buckets as people write them: 0-511,600; `all`."""
    if text == "all":
        return list(range(BUCKETS))
    found: set[int] = set()
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not (first.isdigit() and (last.isdigit() or not dash)):
            raise Refused(f"buckets {text!r}: write ranges as 0-511,600, or all")
        begin, end = int(first), int(last or first)
        if not begin <= end < BUCKETS:
            raise Refused(f"buckets {piece}: there are 0 to {BUCKETS - 1}")
        found.update(range(begin, end + 1))
    return sorted(found)


def check_map(given: ShardMap) -> None:
    """Refuse a map that leaves a bucket out, or that its own keeper could not read."""
    firsts = [first for first, _ in given.ranges]
    if not firsts or firsts[0] or firsts != sorted(set(firsts)) or firsts[-1] >= BUCKETS:
        raise Refused(f"a map of shards has ranges from bucket 0 up to {BUCKETS - 1}, not {firsts}")


def replaced_map(before: ShardMap | None, given: ShardMap, now: float) -> ShardMap:
    """The map that a store keeps from now on; one of a lower or of the same epoch changes nothing.

    A store keeps the name and the fleet that it was first given, and, once it is in force, its
    buckets, which only a move changes.
    """
    del now
    if before is None:
        return given
    if before.fleet != given.fleet:
        raise Refused(
            f"this store is shard {before.shard!r} of another set of shards, and cannot be "
            f"{given.shard!r} of this one as well: name another store"
        )
    if before.shard != given.shard:
        raise Refused(
            f"this store is shard {before.shard!r}, and not {given.shard!r}: give each name in the "
            "file of shards its own URL again"
        )
    if given.epoch <= before.epoch:
        return before
    return msgspec.structs.replace(before, epoch=given.epoch) if before.epoch else given


class SplitEnqueue(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one enqueue that belong to several shards.

    All of them are accepted once the first shard has this; whoever finds it stores what is missing.
    """

    id: str
    at: float
    jobs: bytes  # as `wire.to_pieces` has them, in MessagePack


def check_split(given: SplitEnqueue) -> None:
    """Nothing can be wrong with one: its jobs were checked before it was made."""


def replaced_split(before: SplitEnqueue | None, given: SplitEnqueue, now: float) -> SplitEnqueue:
    """The first stands: the id is a digest of the jobs."""
    del now
    return before or given


class SplitWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write of Spark's whose parts are staged on several shards, and which was committed.

    All of it is accepted once a shard has this; whoever finds it commits the parts of each shard.
    """

    id: str  # a digest of the write's name
    at: float
    write: str
    parts: Mapping[str, Mapping[str, int]]  # shard -> part -> how many jobs it has there
    token: str = ""
    epoch: tuple[str, int] | None = None


def check_split_write(given: SplitWrite) -> None:
    """Nothing can be wrong with one: its parts were counted before it was made."""


def replaced_write(before: SplitWrite | None, given: SplitWrite, now: float) -> SplitWrite:
    """The first stands: a write is committed once."""
    del now
    return before or given


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """Buckets on their way: kept by the shard that they left until the other one has them.

    Whoever finds it brings it in. Several parts, if there is much in them.
    """

    id: str  # the move's, and the part's number behind a slash
    parts: int
    source: str
    to: str
    versions: Mapping[int, int]  # of each bucket, once it is there
    contents: bytes  # a part of `move.Contents`, in MessagePack

    @property
    def move(self) -> str:
        return self.id.partition("/")[0]


def check_departure(given: Departure) -> None:
    """Nothing can be wrong with one: a store makes it."""


def replaced_departure(before: Departure | None, given: Departure, now: float) -> Departure:
    """The first stands."""
    del now
    return before or given
