"""Opening shards: the map is read from them, or made where there is none yet.

A map is made in two rounds: first every shard gets it with epoch 0, then with epoch 1. So once one
has epoch 1 every shard of the map has had it, and a store without it is not that shard any more.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import ShardMap, even_ranges
from penstock.brokers.sharded.shards import Shard, Shards
from penstock.errors import Refused, StoreUnreachable
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

Opens = Callable[[], Broker]


def open_all(opens: Mapping[str, Opens], *, create: bool) -> Shards:
    """The shards of these stores, with their map; some may be away if one is there."""
    there: dict[str, Broker] = {}
    away: dict[str, StoreUnreachable] = {}
    try:
        for name in sorted(opens):
            try:
                there[name] = opens[name]()
            except StoreUnreachable as error:
                away[name] = error
        shard_map = _found(there, away) or _make(there, away, create=create)
        _complete(there, away, shard_map)
    except BaseException:
        for broker in there.values():
            broker.close()
        raise
    shards: dict[str, Shard] = {}
    for name, opener in opens.items():
        shards[name] = Shard(name, _checked(name, opener, shard_map), there.get(name))
        if name in away:
            shards[name].away = str(away[name])
    return Shards(shards, shard_map)


def map_of(broker: Broker) -> ShardMap | None:
    """The map that a store keeps, if it is a shard."""
    return next(iter(broker.records(ShardMap)), None)


def _found(there: Mapping[str, Broker], away: Mapping[str, StoreUnreachable]) -> ShardMap | None:
    """The newest map of these stores, if it is in force."""
    found: ShardMap | None = None
    for name, broker in there.items():
        kept = map_of(broker)
        if kept is None:
            continue
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
        if found is None or kept.epoch > found.epoch:
            found = kept
    if found is None or not found.epoch:
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


def _complete(
    there: Mapping[str, Broker], away: Mapping[str, StoreUnreachable], shard_map: ShardMap
) -> None:
    """Every store that is there has this map from now on."""
    del away
    for name, broker in there.items():
        kept = map_of(broker)
        if kept is None:
            _check_new(name, broker, shard_map)
        if kept is None or kept.epoch < shard_map.epoch:
            broker.put(shard_map.of(name))


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


def _checked(name: str, opens: Opens, shard_map: ShardMap) -> Opens:
    """What opens a shard that was away, and looks whether it is the right one."""

    def opened() -> Broker:
        broker = opens()
        try:
            kept = map_of(broker)
            if kept is None:
                _check_new(name, broker, shard_map)
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
