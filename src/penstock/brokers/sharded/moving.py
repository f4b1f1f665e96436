"""Moving buckets from shard to shard, and finishing moves that others left half-way.

    taken out       the source keeps what was in the buckets; its map says where they go
    brought in      the target has it; its map says so, too
    cleared         the source forgets what it kept

A step that is repeated changes nothing. So the mover is nobody special: whoever finds what a shard
keeps (upkeep, or a call that waits for the bucket) brings it in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.broker.environment import Environment
from penstock.broker.move import Move, can_move
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions
from penstock.broker.quota import Quota, dealt_out, over_shards
from penstock.broker.records import PLAIN_KINDS
from penstock.broker.shard_map import Departure
from penstock.broker.worker_settings import WorkerSettings
from penstock.brokers.sharded.quotas import Quotas
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.rules.rule import Rule

_ON_ALL: tuple[type[Any], ...] = (
    *(Rule, Subscription, QueueOptions),
    *(WorkerSettings, Environment),
)

log = logging.getLogger("penstock")


class ShardedMoves:
    """Move buckets of these shards."""

    def __init__(self, shards: Shards, quotas: Quotas) -> None:
        self._shards = shards
        self._quotas = quotas
        self._reported: set[str] = set()

    def move(self, buckets: Collection[int], to: str) -> frozenset[int]:
        """Move buckets of one shard, with those that must stay with them; which ones moved.

        All of them leave in one transaction of their shard, and arrive in one of the target's. If
        they are of several shards, those of one move.
        """
        self._shards.look_again()
        owners = {bucket: self._shards.newest.owner(bucket) for bucket in sorted(buckets)}
        sources = [owner for owner in owners.values() if owner != to]
        if not sources:
            return frozenset()
        shard, target = self._shards.named[sources[0]], self._shards.named[to]
        movable(target)
        self._quotas.adopt(shard)
        leaving = frozenset(bucket for bucket, owner in owners.items() if owner == shard.name)
        while True:
            taken = shard.call(lambda store, some=leaving: movable_store(store).take_out(some, to))
            if not taken.together:
                break
            leaving |= taken.together
        if not taken.departures:
            return frozenset()
        self._bring_in(shard, taken.departures)
        self._shards.look_again()
        return frozenset(taken.departures[0].versions)

    def finish(self) -> int:
        """Bring in what others took out; how many moves there were."""
        done = 0
        for shard in self._shards.all:
            if shard.resting:
                continue
            moves: dict[str, list[Departure]] = {}
            try:
                for part in shard.call(lambda store: store.records(Departure)):
                    moves.setdefault(part.move, []).append(part)
            except AWAY:
                continue
            for move, parts in moves.items():
                try:
                    self._bring_in(shard, parts)
                    done += 1
                except (Refused, *AWAY) as error:
                    if move not in self._reported:
                        self._reported.add(move)
                        log.warning("buckets that are on their way arrive later: %s", error)
        return done

    def _bring_in(self, source: Shard, parts: Sequence[Departure]) -> None:
        target = self._shards.named.get(parts[0].to)
        if target is None:
            raise Refused(
                f"buckets of shard {source.name} are on their way to shard {parts[0].to!r}, which "
                "the file of shards does not name: add its URL under that name"
            )
        _bring_rules(source, target)
        target.call(lambda store: movable_store(store).bring_in(parts))
        for part in parts:
            source.call(lambda store, part=part: store.clear(Departure, part.id))
        self._quotas.deal_all()


def _bring_rules(source: Shard, target: Shard) -> None:
    """What is on all shards, and is missing on one that was empty until now.

    Of a limit over all of them it gets a part of nothing, before it gets any jobs.
    """
    there = {quota.id: quota for quota in target.call(_all_of(Quota))}
    for quota in source.call(_all_of(Quota)):
        kept = there.get(quota.id)
        # As it was before whoever set or cleared it last, who did not know this shard.
        if kept is None or (kept.limit, kept.cleared) != (quota.limit, quota.cleared):
            target.call(lambda store, quota=quota: store.put(quota.emptied))
    for kind in _ON_ALL:
        known = {_name_of(record) for record in target.call(_all_of(kind))}
        for record in source.call(_all_of(kind)):
            if _name_of(record) in known or (isinstance(record, Rule) and over_shards(record)):
                continue
            author, reason = getattr(record, "author", ""), getattr(record, "reason", "")
            with dealt_out():
                target.call(
                    lambda store, record=record, said=(author, reason): store.put(record, *said)
                )
    for app in source.call(lambda store: store.traits.sealed_apps()):
        target.call(lambda store, app=app: store.traits.mark_sealed(app))


def movable(shard: Shard) -> None:
    """Refuse a shard whose store cannot move buckets."""
    shard.call(movable_store)


def movable_store(store: Broker) -> Move:
    if not can_move(store):
        raise Refused(f"buckets do not move to or from {store.traits.name} yet")
    return store


def _all_of(kind: type[Any]) -> Callable[[Broker], Sequence[Any]]:
    return lambda store: store.records(kind)


def _name_of(record: Any) -> str:
    if isinstance(record, Rule):
        return record.id
    return next(kind.id_of(record) for kind in PLAIN_KINDS if kind.type is type(record))
