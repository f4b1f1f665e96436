"""Writes that are not published yet: jobs that no other verb can see, by write and part."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.app.clock import AnyClock
from penstock.broker.checks import check_age, check_job, check_lane, check_stage, check_staged
from penstock.broker.traits import Traits
from penstock.broker.values import STAGED_SECONDS
from penstock.brokers.memory.store import MemoryStore, unpacked
from penstock.job import Job, Parcel


class MemoryStaging:
    """Stage, commit and discard writes in parts; whoever inherits has the store and its lock."""

    clock: AnyClock
    traits: Traits
    _lock: threading.Condition
    _store: MemoryStore

    def __init__(self) -> None:
        self._staged: dict[str, dict[str, dict[str, Job[Any]]]] = {}
        self._staged_at: dict[str, float] = {}

    def _check(self, jobs: Sequence[Job[Any] | Parcel], now: float) -> list[Job[Any]]:
        """Every job by itself, if all of them may be stored."""
        oldest = max(now - self.traits.retention, self._store.pruned_before)
        offered = list(unpacked(jobs))
        for job in offered:
            check_age(job.id, now, oldest)
            check_lane(job.lane)
            check_job(job)
        return offered

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        check_stage(write, part)
        with self._lock:
            now = self.clock.now()
            offered = self._check(jobs, now)
            held = self._staged.setdefault(write, {}).setdefault(part, {})
            held.update({job.id: job for job in offered if job.id not in held})
            self._staged_at[write] = now

    def commit_write(self, write: str, parts: Mapping[str, int]) -> int:
        check_stage(write)
        with self._lock:
            now, store = self.clock.now(), self._store
            staged = self._staged.get(write, {})
            if write not in store.published:
                check_staged(write, parts, {part: len(held) for part, held in staged.items()})
                jobs = [job for part in parts for job in staged.get(part, {}).values()]
                store.take_in(self._check(jobs, now), None, now)
                store.published[write] = (sum(parts.values()), now)
            self.discard(write)
            self._lock.notify_all()
            return store.published[write][0]

    def discard(self, write: str) -> None:
        check_stage(write)
        with self._lock:
            self._staged.pop(write, None)
            self._staged_at.pop(write, None)

    def _forget_staged(self, before: float) -> None:
        """What nobody published for a day, and which writes were published before this time."""
        old = self.clock.now() - STAGED_SECONDS
        for write in [write for write, at in self._staged_at.items() if at < old]:
            self.discard(write)
        published = self._store.published
        self._store.published = {name: row for name, row in published.items() if row[1] >= before}
