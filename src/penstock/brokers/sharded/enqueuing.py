"""Enqueue over shards. Jobs of one shard go there as they are.

Jobs of several are written down on the shard of the first (`SplitEnqueue`): from then on they are
accepted, and everybody who looks after the store carries on with them. Then each shard stores its
own, and the record is cleared. Every step may be repeated: what is stored is left as it is.

    killed before the record     nothing is stored
    killed after it              whoever calls `recover` next stores the rest
    the record's answer is lost  UnknownOutcome: the same jobs sent again make the same record
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from penstock.broker import wire
from penstock.broker.checks import check_age, check_body, check_job, check_lane
from penstock.broker.move import StaleMap
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import SplitEnqueue
from penstock.broker.traits import Traits
from penstock.broker.values import Batch, Enqueued
from penstock.brokers.sharded.misplaced import Misplaced
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.flows.flow import Flow
from penstock.job import Job, Parcel

SENDER_SECONDS = 10.0  # so long whoever sent the jobs is left to store them
_EDGE_SECONDS = 60.0  # ids that a store might refuse any moment as too old

log = logging.getLogger("penstock")
Piece = Job[Any] | Parcel


class ShardedIntake:
    """Store jobs, each on its shard; finish what others left."""

    def __init__(
        self, shards: Shards, misplaced: Misplaced, traits: Traits, now: Callable[[], float]
    ) -> None:
        self._shards = shards
        self._misplaced = misplaced
        self._traits = traits
        self._now = now
        self._reported: set[str] = set()

    def enqueue(
        self,
        jobs: Sequence[Piece],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        if connection is not None:
            raise Refused(
                f"{self._traits.name} have no transaction to join: leave out connection=, or use a "
                "store in the application's own database"
            )
        if not jobs:
            return self._count_of(batch)
        self._misplaced.check(jobs, flow)
        by_shard = self._by_shard(jobs)
        if len(by_shard) == 1:
            [shard] = by_shard
            return shard.write(lambda store: store.enqueue(jobs, batch=batch, flow=flow))
        if batch is not None:
            raise Refused(
                f"batch {batch.id!r}: its rows are of several shards, and one counts them: give all"
                " of them ids of one bucket"
            )
        return self._enqueue_split(jobs, by_shard)

    def _count_of(self, batch: Batch | None) -> Enqueued:
        if batch is None:
            return Enqueued()
        asked = Batch(batch.id)
        counts = self._shards.every(lambda store: store.enqueue((), batch=asked)).values()
        return max(counts, key=lambda answer: answer.batch)

    def _by_shard(self, jobs: Sequence[Piece]) -> dict[Shard, list[Piece]]:
        found: dict[Shard, list[Piece]] = {}
        for job in jobs:
            found.setdefault(self._shards.of(job.id), []).append(job)
        return found

    def _enqueue_split(self, jobs: Sequence[Piece], by_shard: dict[Shard, list[Piece]]) -> Enqueued:
        self._check(jobs)
        encoded = wire.encode(wire.to_pieces(jobs))
        name = hashlib.sha256(encoded).hexdigest()[:32]
        record = SplitEnqueue(id=name, at=self._now(), jobs=encoded)
        first = next(iter(by_shard))
        try:
            first.call(lambda store: store.put(record))
        except StoreUnreachable as error:
            raise UnknownOutcome(
                f"{error}; whether the jobs are stored is not known. Sending them again is safe: "
                "each is stored once",
                jobs,
            ) from error
        return self._store(record, first, by_shard)

    def _store(
        self, record: SplitEnqueue, first: Shard, by_shard: dict[Shard, list[Piece]]
    ) -> Enqueued:
        """Store all of them where they belong; what cannot be stored now is stored later."""
        known: set[str] = set()
        standing: dict[str, str] = {}
        left: Exception | None = None
        stored = False
        with self._shards.patience() as patience:
            pending = list(by_shard.items())
            while pending:
                shard, some = pending.pop(0)
                try:
                    answer = shard.write(_enqueueing(some))
                except StaleMap as stale:
                    stored = True
                    try:  # buckets of these moved: they are stored where those are now
                        pending += self._regrouped(some, stale, patience).items()
                    except AWAY as error:
                        left = error
                    continue
                except AWAY as error:
                    left = error
                    continue
                except Refused as error:
                    if not stored and left is None:
                        self._clear(record, first)
                        raise
                    left = error
                    continue
                stored = True
                known |= answer.known
                standing |= answer.standing
        if left is None:
            self._clear(record, first)
        else:
            self._report(record, left)
        return Enqueued(frozenset(known), standing)

    def _regrouped(
        self, jobs: list[Piece], stale: StaleMap, patience: Callable[[StaleMap], None]
    ) -> dict[Shard, list[Piece]]:
        while True:
            patience(stale)
            try:
                return self._by_shard(jobs)
            except StaleMap as again:
                stale = again

    def finish(self) -> None:
        """Store what others wrote down and did not get to; called by everybody's upkeep."""
        for shard in self._shards.all:
            if shard.resting:
                continue
            try:
                records = shard.call(lambda store: store.records(SplitEnqueue))
            except AWAY:
                continue
            for record in records:
                if self._now() - record.at >= SENDER_SECONDS:
                    jobs = wire.from_pieces(wire.decode(record.jobs, list[wire.Piece]))
                    try:
                        self._store(record, shard, self._by_shard(jobs))
                    except (Refused, StaleMap) as error:
                        self._report(record, error)

    def _clear(self, record: SplitEnqueue, first: Shard) -> None:
        try:
            first.call(lambda store: store.clear(SplitEnqueue, record.id))
        except AWAY as error:
            self._report(record, error)  # it is found later, and nothing is left to do for it

    def _report(self, record: SplitEnqueue, error: Exception) -> None:
        if record.id not in self._reported:
            self._reported.add(record.id)
            log.warning("jobs that were accepted are stored later: %s", error)

    def _check(self, jobs: Sequence[Piece]) -> None:
        """What any of the stores would refuse, before one of them has anything."""
        now = self._now()
        oldest = now - self._traits.retention + _EDGE_SECONDS
        for job in jobs:
            check_age(job.id, now, oldest)
            check_lane(job.lane)
            if isinstance(job, Job):
                check_job(job)
            else:
                for body in job.bodies:
                    check_body(body)


def _enqueueing(jobs: Sequence[Piece]) -> Callable[[Broker], Enqueued]:
    return lambda store: store.enqueue(jobs)
