"""Moving buckets out of and into memory; and what refuses a write that was planned before.

Jobs that succeeded stay, as the history does.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.broker.move import (
    Contents,
    HeldKey,
    KeptNote,
    SentIds,
    TakenOut,
    arrived,
    arriving,
    check_epoch,
    departures,
    keys_elsewhere,
    leaving,
    planned_epoch,
    split_apart,
)
from penstock.broker.shard_map import MAP_ID, Departure, ShardMap
from penstock.brokers.memory.containers import UniqueHolder, lane_of
from penstock.brokers.memory.rules import MemoryRules
from penstock.brokers.memory.store import MemoryStore
from penstock.enqueue.ids import bucket_for, bucket_of, offset_of, prefix_of, time_of
from penstock.errors import Refused
from penstock.job import Job, State
from penstock.schedules.schedule import bucket_text

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="MemoryMoving")


class MemoryMoving:
    """Take buckets out, and bring them in; whoever inherits has the store and its lock."""

    _lock: threading.Condition
    _store: MemoryStore
    _rules: MemoryRules

    def shard_map(self) -> ShardMap | None:
        """The store's own copy of the map, if it is a shard."""
        return self._store.plain_records["shard_map"].get(MAP_ID)

    def take_out(self, buckets: Collection[int], to: str) -> TakenOut:
        with self._lock:
            store, kept = self._store, self.shard_map()
            leave = leaving(kept, buckets, to)
            if kept is None or not leave:
                return TakenOut()
            self._check_staged(leave)
            jobs = [
                job
                for job in store.jobs.values()
                if bucket_of(job.id) in leave and job.state is not State.SUCCEEDED
            ]
            keys = [(key, each.job) for key, each in store.keys.standing.items()]
            pairs = keys_elsewhere(store.jobs.values(), keys, self._rules.all())
            if together := split_apart(pairs, leave):
                return TakenOut(together=together)
            parts = departures(str(uuid.uuid4()), kept, leave, to, self._take(jobs, leave))
            for part in parts:
                store.plain_records["departure"][part.id] = part
            versions = parts[0].versions
            store.plain_records["shard_map"][MAP_ID] = kept.moved(leave, versions, to)
            self._empty_quotas()
            return TakenOut(parts)

    def _empty_quotas(self) -> None:
        """Running jobs left: nothing takes their place here before all shards are counted anew."""
        quotas = self._store.plain_records["quota"]
        for quota in [each for each in quotas.values() if not each.cleared]:
            quotas[quota.id] = quota.emptied
            self._rules.put_checked(quota.emptied.part, told=False)

    def _take(self, jobs: Sequence[Job[Any]], leave: Collection[int]) -> Contents:
        store = self._store
        running = [job for job in jobs if job.state is State.RUNNING]
        holders = sorted({job.worker or "" for job in running} & store.workers.keys())
        sent = [job_id for job_id in store.sent if bucket_of(job_id) in leave]
        keys = {
            key: holder
            for key, holder in store.keys.standing.items()
            if bucket_of(holder.job) in leave
        }
        schedules = [
            schedule
            for schedule in store.schedules.values()
            if bucket_for(bucket_text(schedule)) in leave
        ]
        batches = [batch for batch in store.batches if bucket_for(batch) in leave]
        contents = Contents(
            jobs=list(jobs),
            asked=[job.id for job in running if job.id in store.asked],
            workers=[store.workers[worker].row for worker in holders],
            notes=[
                KeptNote(job.id, note)
                for job in jobs
                if job.id in store.notes
                for note in store.notes[job.id].values()
            ],
            sent=[SentIds(job_id, 1, self._lane(job_id), store.sent[job_id]) for job_id in sent],
            keys=[HeldKey(key, *holder) for key, holder in keys.items()],
            flows=store.flows.take_out(lambda flow_id: bucket_of(flow_id) in leave),
            schedules=schedules,
            batches=[(batch, *store.batches[batch]) for batch in batches],
        )
        for job in jobs:
            store.take_out(job)
            store.take_away(job)
            store.notes.pop(job.id, None)
            del store.jobs[job.id]
        for job_id in sent:
            del store.sent[job_id]
        for key in keys:
            del store.keys.standing[key]
        for schedule in schedules:
            del store.schedules[schedule.name]
            store.rules_version += 1
        for batch in batches:
            del store.batches[batch]
        return contents

    def _lane(self, job_id: str) -> int:
        """The lane of a job that is there; others have no need of theirs."""
        job = self._store.jobs.get(job_id)
        return 0 if job is None else lane_of(job).hash

    def _check_staged(self, leave: Collection[int]) -> None:
        for write, parts in self._store.staged.items():
            if any(bucket_of(job_id) in leave for jobs in parts.values() for job_id in jobs):
                raise Refused(
                    f"write {write} has rows for these buckets that are not committed yet: move "
                    "them when it is, or discard it"
                )

    def bring_in(self, departures: Sequence[Departure]) -> bool:
        with self._lock:
            store, kept = self._store, self.shard_map()
            contents = arriving(kept, departures)
            if kept is None or contents is None:
                return False
            self._place_jobs(contents)
            for ids in contents.sent:
                self._remember(ids)
            for held in contents.keys:
                store.keys.standing[held.key] = UniqueHolder(held.job, held.until, held.ends_at)
            for schedule in contents.schedules:
                store.schedules[schedule.name] = schedule
                store.rules_version += 1
            for batch, rows, at in contents.batches:
                store.batches[batch] = (rows, at)
            store.plain_records["shard_map"][MAP_ID] = arrived(kept, departures)
            store.hints += 1
            self._lock.notify_all()
            return True

    def _place_jobs(self, contents: Contents) -> None:
        store = self._store
        for row in contents.workers:
            store.keep_alive(row)
        for flow in contents.flows:
            store.flows.bring_in(flow)
        for job in contents.jobs:
            self._place(job)
        for job_id in contents.asked:
            store.asked.add(job_id)
        for each in contents.notes:
            store.notes[each.job][each.note.kind, each.note.name] = each.note

    def _place(self, job: Job[Any]) -> None:
        store = self._store
        if job.state is State.WAITING:
            store.make_wait(job)
        elif job.state is State.READY:
            store.make_ready(job)
        else:
            store.jobs[job.id] = job
            if job.state is State.RUNNING:
                store.held[job.worker or ""][job.id] = None

    def _remember(self, ids: SentIds) -> None:
        head, first = prefix_of(ids.first), offset_of(ids.first)
        at = ids.at or time_of(ids.first) or self._store.clock.now()
        for offset in range(first, first + ids.jobs):
            self._store.sent[f"{head}{offset:03x}"] = at


def fenced(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A verb that is refused if it was planned with an older map than the store's."""

    @wraps(verb)
    def checked(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        if not planned_epoch():
            return verb(self, *args, **kwargs)
        with self._lock:  # pyright: ignore[reportPrivateUsage]  its own
            kept = self.shard_map()
            check_epoch(None if kept is None else kept.epoch)
            return verb(self, *args, **kwargs)

    return checked
