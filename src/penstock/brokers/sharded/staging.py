"""Writes in parts over shards. Each job is staged on its own shard; a commit is all or none.

What is staged is counted on all shards first. Then the parts of each are written down on one of
them (`SplitWrite`): from then on the write is accepted, and everybody who looks after the store
carries on with it. Then each shard commits its own parts, and the record is cleared. Every shard
remembers the write, also one that has no part of it.

    killed before the record     nothing is stored
    killed after it              whoever calls `recover` next commits the rest
    the record's answer is lost  UnknownOutcome: the same commit again finds the record, or makes it
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.broker.checks import check_stage, check_staged
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import SplitWrite
from penstock.broker.values import Committed, Epoch
from penstock.brokers.sharded.enqueuing import SENDER_SECONDS
from penstock.brokers.sharded.misplaced import Misplaced
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.enqueue.ids import bucket_for
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.job import Job, Parcel

# A part that nobody stages: asked to commit it, a store says only what it committed before.
_NO_PART = {"no part": 1}

log = logging.getLogger("penstock")


class _Kept(NamedTuple):
    """A record, and the shard that has it."""

    record: SplitWrite
    home: Shard


class ShardedStaging:
    """Stage, commit and discard writes in parts; finish what others left."""

    def __init__(self, shards: Shards, misplaced: Misplaced, now: Callable[[], float]) -> None:
        self._shards = shards
        self._misplaced = misplaced
        self._now = now
        self._reported: set[str] = set()

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        check_stage(write, part)
        if not jobs:
            return sum(self._shards.every(lambda store: store.stage(write, part, ())).values())
        self._misplaced.check(jobs)
        by_shard: dict[Shard, list[Job[Any] | Parcel]] = {}
        for job in jobs:
            by_shard.setdefault(self._shards.of(job.id), []).append(job)
        for shard, some in by_shard.items():
            shard.write(_staging(write, part, some))
        return 0

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        check_stage(write)
        if (done := self._decided(write, token, epoch)) is not None:
            return done
        staged = self._staged(write, parts)
        try:
            check_staged(write, parts, _sums(staged))
        except Refused:
            # Somebody else may have committed it since.
            if (done := self._decided(write, token, epoch)) is not None:
                return done
            raise
        return self._carry_out(self._decide(write, staged, token, epoch))

    def discard(self, write: str) -> None:
        check_stage(write)
        if self._kept(write) is not None:
            return  # it is accepted
        self._shards.every(lambda store: store.discard(write))

    def finish(self) -> None:
        """Commit what others decided and did not get to; called by everybody's upkeep."""
        for shard in self._shards.all:
            if shard.resting:
                continue
            try:
                records = shard.call(_records)
            except AWAY:
                continue
            for record in records:
                if self._now() - record.at >= SENDER_SECONDS:
                    try:
                        self._carry_out(_Kept(record, shard))
                    except Refused as error:
                        self._report(record, error)

    def _kept(self, write: str) -> _Kept | None:
        """The record of a write that was decided, wherever it is."""
        name, away = _id_of(write), list[Exception]()
        for shard in self._shards.all:
            try:
                records = shard.call(_records)
            except AWAY as error:
                away.append(error)
                continue
            if found := next((record for record in records if record.id == name), None):
                return _Kept(found, shard)
        if away:
            raise away[0]
        return None

    def _decided(self, write: str, token: str, epoch: Epoch | None) -> Committed | None:
        """What became of a write that was decided before, after it is finished; None: it was not.

        A shard commits its parts only while there is a record, and where the first one refuses
        there is nothing left: what one has committed without a record, all have.
        """
        committed = self._committed(write, token, epoch)
        if (kept := self._kept(write)) is not None:
            return self._carry_out(kept)
        return committed and self._committed(write, token, epoch)

    def _committed(self, write: str, token: str, epoch: Epoch | None) -> Committed | None:
        """What the shards know of a write that they committed; None: nothing."""
        answers: list[Committed] = []
        for shard in self._shards.all:
            try:
                answers.append(shard.call(_committing(write, _NO_PART, token, epoch)))
            except Refused:
                continue
        jobs = sum(answer.jobs for answer in answers)
        return Committed(jobs, answers[0].token) if answers else None

    def _staged(self, write: str, parts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """How many jobs of each part each shard has."""
        found: dict[str, dict[str, int]] = {}
        for shard in self._shards.all:
            counts = {part: shard.call(_staging(write, part, ())) for part in parts}
            found[shard.name] = {part: count for part, count in counts.items() if count}
        return found

    def _decide(
        self,
        write: str,
        staged: Mapping[str, Mapping[str, int]],
        token: str,
        epoch: Epoch | None,
    ) -> _Kept:
        home = self._home(write)
        record = SplitWrite(
            id=_id_of(write),
            at=self._now(),
            write=write,
            parts=staged,
            token=token,
            epoch=None if epoch is None else (epoch.stream, epoch.number),
        )
        try:
            return _Kept(home.call(lambda store: store.put(record)), home)
        except StoreUnreachable as error:
            raise UnknownOutcome(
                f"{error}; whether write {write!r} is committed is not known. To commit it again "
                "is safe: it is committed once",
                [],
            ) from error

    def _carry_out(self, kept: _Kept) -> Committed:
        """Commit the parts of each shard; what cannot be committed now is committed later."""
        record = kept.record
        epoch = None if record.epoch is None else Epoch(*record.epoch)
        answers: list[Committed] = []
        left: Exception | None = None
        # First those that may refuse: a shard that has no part of it only remembers.
        for shard in sorted(self._shards.all, key=lambda shard: not record.parts.get(shard.name)):
            parts = record.parts.get(shard.name, {})
            try:
                answers.append(shard.call(_committing(record.write, parts, record.token, epoch)))
            except AWAY as error:
                left = error
            except Refused as error:
                if not answers and left is None:
                    self._clear(kept)
                    raise
                left = error
        left_out = tuple(job for answer in answers for job in answer.left_out)
        if left is None:
            self._clear(kept)
            return Committed(sum(answer.jobs for answer in answers), answers[-1].token, left_out)
        self._report(record, left)
        return Committed(sum(_sums(record.parts).values()), record.token, left_out)

    def _home(self, write: str) -> Shard:
        return self._shards.of_bucket(bucket_for(write))

    def _clear(self, kept: _Kept) -> None:
        try:
            kept.home.call(lambda store: store.clear(SplitWrite, kept.record.id))
        except AWAY as error:
            self._report(kept.record, error)  # it is found later, and nothing is left to do for it

    def _report(self, record: SplitWrite, error: Exception) -> None:
        if record.id not in self._reported:
            self._reported.add(record.id)
            log.warning("write %r is committed, and finished later: %s", record.write, error)


def _id_of(write: str) -> str:
    return hashlib.sha256(write.encode()).hexdigest()[:32]


def _sums(staged: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """How many jobs each part has on all shards."""
    sums: dict[str, int] = {}
    for parts in staged.values():
        for part, count in parts.items():
            sums[part] = sums.get(part, 0) + count
    return sums


def _records(store: Broker) -> list[SplitWrite]:
    return store.records(SplitWrite)


def _staging(write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> Callable[[Broker], int]:
    return lambda store: store.stage(write, part, jobs)


def _committing(
    write: str, parts: Mapping[str, int], token: str, epoch: Epoch | None
) -> Callable[[Broker], Committed]:
    return lambda store: store.commit_write(write, parts, token, epoch)
