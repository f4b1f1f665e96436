"""Writes that are not published yet: jobs that no other verb can see, by write and part."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.app.clock import AnyClock
from penstock.broker.checks import check_age, check_job, check_lane, check_stage, check_staged
from penstock.broker.traits import Traits
from penstock.broker.values import STAGED_SECONDS, Committed, Epoch, differs
from penstock.brokers.memory.containers import PublishedWrite
from penstock.brokers.memory.moving import MemoryMoving, fenced
from penstock.brokers.memory.store import MemoryStore, unpacked
from penstock.job import Job, Parcel


class MemoryStaging(MemoryMoving):
    """Stage, commit and discard writes in parts; whoever inherits has the store and its lock."""

    clock: AnyClock
    traits: Traits
    _lock: threading.Condition
    _store: MemoryStore

    def _check(self, jobs: Sequence[Job[Any] | Parcel], now: float) -> list[Job[Any]]:
        """Every job by itself, if all of them may be stored."""
        oldest = max(now - self.traits.retention, self._store.pruned_before)
        offered = list(unpacked(jobs))
        for job in offered:
            check_age(job.id, now, oldest)
            check_lane(job.lane)
            check_job(job)
        return offered

    @fenced
    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        check_stage(write, part)
        with self._lock:
            if not jobs:
                return len(self._staged(write).get(part, ()))
            now = self.clock.now()
            offered = self._check(jobs, now)
            parts = self._store.staged.get(write, {})
            before = parts.get(part, {})
            held = before | {job.id: job for job in offered if job.id not in before}
            self._store.staged[write] = {**parts, part: held}
            self._store.staged_at[write] = now
            return 0

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        check_stage(write)
        stream, number = (write, 0) if epoch is None else epoch
        with self._lock:
            now, store = self.clock.now(), self._store
            staged = self._staged(write)
            left_out: tuple[Job[Any], ...] = ()
            before = store.published.get(stream)
            if before is None or before.epoch < number:
                check_staged(write, parts, {part: len(held) for part, held in staged.items()})
                jobs = [job for part in parts for job in staged.get(part, {}).values()]
                store.take_in(self._check(jobs, now), None, now)
                left_out = tuple(job for job in jobs if differs(job, store.jobs.get(job.id)))
                store.published[stream] = PublishedWrite(sum(parts.values()), now, token, number)
            self.discard(write)
            self._lock.notify_all()
            published = store.published[stream]
            if published.epoch != number:
                return Committed(0, "")
            return Committed(published.jobs, published.token, left_out)

    def _staged(self, write: str) -> Mapping[str, Mapping[str, Job[Any]]]:
        """The parts of a write, each with its jobs by their ids."""
        return self._store.staged.get(write, {})

    def discard(self, write: str) -> None:
        check_stage(write)
        with self._lock:
            self._store.staged.pop(write, None)
            self._store.staged_at.pop(write, None)

    def _forget_staged(self) -> None:
        """Forget what nobody published for a day."""
        old = self.clock.now() - STAGED_SECONDS
        for write in [write for write, at in self._store.staged_at.items() if at < old]:
            self.discard(write)
