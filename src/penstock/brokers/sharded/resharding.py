"""What people do to shards: look where the buckets are, add a shard, move buckets, empty a shard.

Buckets move a few at a time. Between two times the mover rests, so that the stores have time for
the jobs, and it may be killed anywhere: called again it goes on with what is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from penstock.app.settings import mask
from penstock.broker.quota import over_shards
from penstock.broker.shard_map import Departure, ShardMap, SplitEnqueue, text_of_buckets
from penstock.broker.views import WorkerRow
from penstock.brokers.sharded.broker import ShardedBroker
from penstock.brokers.sharded.moving import movable
from penstock.brokers.sharded.shards import AWAY, MOVING_SECONDS, Shard
from penstock.enqueue.ids import BUCKETS
from penstock.errors import Refused, StoreUnreachable
from penstock.rules.rule import Rule

BUSY = 0.2  # the part of its time that a mover works
_FIRST, _FEW, _MOST = 4, 8, 64  # buckets at a time
_LONG, _SHORT = 0.5, 0.1  # seconds that a time should take
_TRIES = 5
_WAIT_SECONDS = 0.2


def next_size(size: int, took: float) -> int:
    """How many buckets to take next, after so many took so long.

    On a busy machine a step takes long whatever it moves, and one bucket at a time would take for
    ever: below a few it goes only where calls would wait in vain.
    """
    if took > MOVING_SECONDS:
        return max(1, size // 2)
    if took > _LONG:
        return max(min(size, _FEW), size // 2)
    return min(_MOST, size * 2) if took < _SHORT else size


class ShardState(msgspec.Struct, frozen=True):
    """One shard, as people see it."""

    name: str
    url: str
    buckets: str  # as 0-511,600
    number: int
    open_jobs: int | None  # ready, waiting and running; None: it is away
    failed_jobs: int | None
    workers: int | None  # alive
    on_their_way: int  # buckets that left it and have not come where they go
    away: str | None = None


class Moved(msgspec.Struct, frozen=True):
    """How far a move is."""

    done: int
    of: int
    seconds_left: float | None
    longest: float  # seconds in which some buckets took no writes


class Resharding:
    """Shards of one file, in the hands of who looks after them."""

    def __init__(self, broker: ShardedBroker, urls: Callable[[], Mapping[str, str]]) -> None:
        self.broker = broker
        self._shards = broker.shards
        self._urls = urls

    def close(self) -> None:
        self.broker.close()

    def states(self) -> list[ShardState]:
        """Each shard, what it has, and what is on its way."""
        self._shards.look_again()
        urls = self._urls()
        return [self._state(shard, urls.get(shard.name, "")) for shard in self._shards.all]

    def _state(self, shard: Shard, url: str) -> ShardState:
        mine = self._buckets_of(shard.name)
        open_jobs = kept = workers = None
        coming: set[int] = set()
        try:
            counts = shard.call(lambda store: store.count())
            open_jobs = sum(c.ready + c.scheduled + c.waiting + c.running for c in counts)
            kept = sum(count.failed for count in counts)
            workers = sum(row.alive for row in shard.call(lambda store: store.workers()))
            for departure in shard.call(lambda store: store.records(Departure)):
                coming |= departure.versions.keys()
        except AWAY:
            pass
        return ShardState(
            shard.name,
            mask(url),
            text_of_buckets(mine),
            len(mine),
            open_jobs,
            kept,
            workers,
            len(coming),
            shard.away,
        )

    def _buckets_of(self, name: str) -> list[int]:
        newest = self._shards.newest
        return [bucket for bucket in range(BUCKETS) if newest.owner(bucket) == name]

    def add(self, name: str) -> None:
        """Have a shard of the file join: it gets the map and the rules, and no buckets yet."""
        shard = self._named(name)
        movable(shard)
        for other in self._shards.others(shard):
            # Writers that do not know it are refused once, and look at the file again.
            kept = other.call(lambda store: store.records(ShardMap))[0]
            raised = msgspec.structs.replace(kept, epoch=kept.epoch + 1)
            other.call(lambda store, raised=raised: store.put(raised))
        self._shards.look_again()

    def strangers(self, to: str) -> list[WorkerRow]:
        """Workers that are alive, and whom this shard does not know."""
        there = {row.id for row in self._named(to).call(lambda store: store.workers()) if row.alive}
        found: dict[str, WorkerRow] = {}
        for shard in self._shards.all:
            if shard.name != to:
                for row in shard.call(lambda store: store.workers()):
                    if row.alive and row.id not in there:
                        found[row.id] = row
        return [found[worker] for worker in sorted(found)]

    def wait_for_workers(self, to: str, seconds: float) -> None:
        """Wait until every worker has found this shard in its own file; refused if one does not."""
        until = time.monotonic() + seconds
        while strangers := self.strangers(to):
            if time.monotonic() > until:
                row = strangers[0]
                raise Refused(
                    f"worker {row.id} on {row.host or 'an unknown host'} does not know shard {to!r}"
                    f" ({len(strangers)} such workers): name it in its own file of shards, which "
                    "it reads again by itself. Nothing was moved"
                )
            time.sleep(_WAIT_SECONDS)

    def to_move(self, buckets: Collection[int], to: str) -> list[int]:
        """Those of these buckets that are elsewhere; refused if a move would break a promise."""
        movable(self._named(to))
        self._shards.look_again()
        newest = self._shards.newest
        left = [bucket for bucket in sorted(buckets) if newest.owner(bucket) != to]
        for name in {newest.owner(bucket) for bucket in left}:
            movable(self._named(name))
        if left and "limits across buckets" not in self.broker.traits.capabilities:
            self._check_limits(to)
        return left

    def _check_limits(self, to: str) -> None:
        for shard in self._shards.all:
            for rule in shard.call(lambda store: store.records(Rule)):
                if over_shards(rule):
                    raise Refused(
                        f"a limit of {rule.target} stands, and while buckets move to shard {to!r} "
                        "two shards would each let as many jobs start: lift it, move, and set it "
                        "again once one shard has all buckets. Nothing was moved"
                    )

    def move(self, buckets: Collection[int], to: str, *, busy: float = BUSY) -> Iterator[Moved]:
        """Move these buckets, a few at a time; resting in between, so that it works `busy`."""
        self.broker.moves.finish()
        left = self.to_move(buckets, to)
        of, size, longest, began = len(left), _FIRST, 0.0, time.monotonic()
        while left:
            some = left[:size]
            started = time.monotonic()
            self._move(some, to)
            took = time.monotonic() - started
            longest = max(longest, took)
            newest = self._shards.newest
            left = [bucket for bucket in left if newest.owner(bucket) != to]
            size = next_size(size, took)
            if left:
                time.sleep(took * (1 / busy - 1))
            done = of - len(left)
            spent = time.monotonic() - began
            yield Moved(done, of, spent / done * len(left) if done else None, longest)

    def _move(self, buckets: Collection[int], to: str) -> frozenset[int]:
        for attempt in range(_TRIES):
            try:
                return self.broker.moves.move(buckets, to)
            except AWAY:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_WAIT_SECONDS * 2**attempt)
        raise StoreUnreachable(f"buckets {text_of_buckets(buckets)} were not moved")

    def shares(self, name: str) -> dict[str, list[int]]:
        """Where the buckets of a shard go that is to be emptied: to the others, evenly."""
        others = [shard.name for shard in self._shards.all if shard.name != name]
        if not others:
            raise Refused(f"shard {name!r} is the only one: add another one before it is emptied")
        mine = self._buckets_of(self._named(name).name)
        sizes = {other: len(self._buckets_of(other)) for other in others}
        shares: dict[str, list[int]] = {other: [] for other in others}
        for bucket in mine:
            least = min(others, key=lambda other: sizes[other])
            shares[least].append(bucket)
            sizes[least] += 1
        return {other: share for other, share in shares.items() if share}

    def rest(self, name: str) -> int:
        """How many rows of history a shard without buckets still has; refused if more is left."""
        shard = self._named(name)
        if shard.call(lambda store: store.records(SplitEnqueue)):
            raise Refused(
                f"shard {name!r} has jobs of an enqueue over several shards, which workers store "
                "elsewhere within seconds: call this again"
            )
        if self._buckets_of(name) or shard.call(lambda store: store.records(Departure)):
            raise Refused(f"shard {name!r} has buckets again: call this again")
        self._check_starts(shard)
        return len(shard.call(lambda store: store.history(None, 1)))

    def _check_starts(self, shard: Shard) -> None:
        """A shard that goes takes along what started there under a rate, which still counts."""
        look = self.broker.quotas.looks().get(shard.name)
        for limit in self.broker.quotas.limits() if look else []:
            if look is not None and (starts := look.use(limit)[1]):
                seconds = 0.0 if limit.rate is None else limit.rate[1]
                raise Refused(
                    f"shard {shard.name!r} counts {starts:,} starts under the rate of "
                    f"{limit.target} ({limit.bound}): call this again in {seconds:g} s"
                )

    def _named(self, name: str) -> Shard:
        if name not in self._shards.named:
            self._shards.look_again()
        if name not in self._shards.named:
            raise Refused(
                f"the file of shards names no {name!r}, or its store cannot join; there are "
                f"{', '.join(self._shards.named)}"
            )
        return self._shards.named[name]
