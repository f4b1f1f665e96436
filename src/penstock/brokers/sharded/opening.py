"""Opening shards: the map is read from them, or made where there is none yet.

A map is made in two rounds: first every shard gets it with epoch 0, then with epoch 1. So once one
has epoch 1 every shard of the map has had it, and a store without it is not that shard any more.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import ShardMap, even_ranges
from penstock.brokers.sharded.shards import Opens, Shard, Shards
from penstock.errors import PenstockError, Refused, StoreUnreachable, WrongUrl
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

_AGAIN_SECONDS = 5.0

log = logging.getLogger("penstock")


def open_all(
    opens: Mapping[str, Opens], *, create: bool, more: Callable[[], Mapping[str, Opens]] | None
) -> Shards:
    """The shards of these stores, with their map; some may be away if one is there.

    `more` says what the file names by now.
    """
    there: dict[str, Broker] = {}
    away: dict[str, StoreUnreachable] = {}

    def open_these(names: Collection[str], *, create: bool) -> None:
        for name in names:
            try:
                there[name] = opens[name](create)
            except StoreUnreachable as error:
                away[name] = error
            else:
                away.pop(name, None)

    try:
        open_these(sorted(opens), create=False)
        found = _found(there, away)
        # A store of the map that is not there was lost: in its place none is made.
        known = () if found is None else found.names
        new = [n for n, error in away.items() if isinstance(error, WrongUrl) and n not in known]
        if create and new:
            open_these(new, create=True)
            found = found or _found(there, away)  # somebody else may have made it meanwhile
        shard_map = found or _make(there, away, create=create)
        copies = {name: _completed(name, broker, shard_map) for name, broker in there.items()}
    except BaseException:
        for broker in there.values():
            broker.close()
        raise
    shards: dict[str, Shard] = {}
    for name, opener in opens.items():
        again = _checked(name, opener, shard_map, create=create)
        shards[name] = Shard(name, again, there.get(name))
        if name in away:
            shards[name].away = str(away[name])

    return Shards(shards, copies, shard_map, _Later(shards, more, create=create))


class _Later:
    """Shards that the file names by now, and did not when they were opened."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        more: Callable[[], Mapping[str, Opens]] | None,
        *,
        create: bool,
    ) -> None:
        self._known = set(shards)
        self._create = create
        self._more = more
        self._look_at: dict[str, float] = {}  # those that could not join: when to try again
        self._joining = threading.Lock()

    def __call__(self, now: ShardMap) -> dict[str, Shard]:
        found: Mapping[str, Opens] = {} if self._more is None else self._more()
        if found.keys() <= self._known or not self._joining.acquire(blocking=False):
            return {}
        try:
            joined = {
                name: shard
                for name in found.keys() - self._known
                if (shard := self._join(name, found[name], now)) is not None
            }
            self._known |= joined.keys()
            return joined
        finally:
            self._joining.release()

    def _join(self, name: str, opens: Opens, now: ShardMap) -> Shard | None:
        if self._look_at.get(name, 0.0) > time.monotonic():
            return None
        shard = Shard(name, _checked(name, opens, now, create=self._create))
        try:
            shard.broker()
        except PenstockError as error:  # the others go on without it
            log.warning("shard %s does not join: %s", name, error)
            self._look_at[name] = time.monotonic() + _AGAIN_SECONDS
            return None
        return shard


def map_of(broker: Broker) -> ShardMap | None:
    """The map that a store keeps, if it is a shard."""
    return next(iter(broker.records(ShardMap)), None)


def _found(there: Mapping[str, Broker], away: Mapping[str, StoreUnreachable]) -> ShardMap | None:
    """The newest map of these stores, if it is in force."""
    found: ShardMap | None = None
    in_force = False
    for name, broker in there.items():
        kept = map_of(broker)
        if kept is None:
            continue
        in_force = in_force or kept.epoch > 0
        if kept.shard != name:
            raise Refused(
                f"the store of shard {name!r} is shard {kept.shard!r}: give each name in the file "
                "of shards its own URL again"
            )
        if found is not None and found.fleet != kept.fleet:
            raise Refused(
                f"the stores of shards {found.shard!r} and {kept.shard!r} belong to two sets of "
                "shards: name those of one"
            )
        found = kept if found is None else found.joined(kept)
    if found is None or not in_force:
        return None
    known = there.keys() | away.keys()
    if unknown := [name for name in found.names if name not in known]:
        raise Refused(
            f"the map has buckets on shard {unknown[0]!r}, which the file of shards does not name: "
            f"add its URL under that name (the file has {', '.join(sorted(known))})"
        )
    return found


def _make(
    there: Mapping[str, Broker], away: Mapping[str, StoreUnreachable], *, create: bool
) -> ShardMap:
    """The first map, on every shard. A store that was used before keeps all buckets."""
    if away:
        name, error = next(iter(away.items()))
        raise StoreUnreachable(
            f"shard {name} is away, and no shard has a map yet, which is made when all are there:"
            f" {error}"
        )
    if not create:
        raise Refused("the shards have no map yet: a worker, or the first enqueue, makes it")
    names = sorted(there)
    used = [name for name in names if map_of(there[name]) is None and _is_used(there[name])]
    if len(used) > 1:
        raise Refused(
            f"the stores of shards {used[0]!r} and {used[1]!r} both have jobs or history of their "
            "own: begin with one of them, and with empty stores beside it"
        )
    ranges = even_ranges(used or names)
    first = ShardMap(fleet=str(uuid.uuid4()), shard=names[0], epoch=0, ranges=ranges)
    try:
        begun = there[names[0]].put(first)
    except Refused:  # somebody else has just begun
        begun = map_of(there[names[0]])
        if begun is None:
            raise
    for epoch in (0, 1):
        for name in names:
            there[name].put(msgspec.structs.replace(begun, shard=name, epoch=epoch))
    return msgspec.structs.replace(begun, epoch=max(begun.epoch, 1))


def _completed(name: str, broker: Broker, shard_map: ShardMap) -> ShardMap:
    """The copy of the map that a store keeps; it is given one if it has none in force."""
    kept = map_of(broker)
    if kept is None:
        _check_new(name, broker, shard_map)
    if kept is None or not kept.epoch:
        kept = broker.put(shard_map.of(name))
    return kept


def _check_new(name: str, broker: Broker, shard_map: ShardMap) -> None:
    if name in shard_map.names:
        raise Refused(
            f"the map has buckets on shard {name!r}, and its store has no map: it was emptied or "
            "replaced. Restore it, or give the name its URL again"
        )
    if _is_used(broker):
        raise Refused(
            f"the store of shard {name!r} has jobs or history of its own, and cannot become one of "
            "several: name an empty one"
        )


def _checked(name: str, opens: Opens, shard_map: ShardMap, *, create: bool) -> Callable[[], Broker]:
    """What opens a shard that was away, and looks whether it is the right one."""

    def opened() -> Broker:
        broker = opens(create and name not in shard_map.names)
        try:
            _completed(name, broker, shard_map)
            broker.put(shard_map.of(name))  # refused by the store of another
        except BaseException:
            broker.close()
            raise
        return broker

    return opened


def _is_used(broker: Broker) -> bool:
    """Whether anybody has used this store by itself."""
    looks: Sequence[Callable[[], object]] = (
        lambda: broker.find(Filter(), limit=1).jobs,
        lambda: broker.history(None, 1),
        lambda: broker.records(Rule),
        lambda: broker.records(Schedule),
    )
    return any(look() for look in looks)
