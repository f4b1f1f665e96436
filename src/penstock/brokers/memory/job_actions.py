"""Look after: what a person does to jobs, one by one or to a whole flow, with an event for each.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.settlement import retried
from penstock.brokers.memory.store import MemoryStore
from penstock.enqueue.secrets import with_secrets
from penstock.flows.flow import WAIT_TASK, Node
from penstock.job import ENDED, Job, State

Secrets = Mapping[str, Any]  # values by argument name
Act = Callable[[Sequence[str], dict[str, str], str | None, Secrets], list[str]]
_BAD = frozenset({State.FAILED, State.CANCELLED})


class MemoryJobActions:
    """Cancel, retry, delete."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def cancel(
        self,
        ids: Sequence[str],
        data: dict[str, str],
        flow: str | None,
        secrets: Secrets,  # noqa: ARG002  only a retry needs them
    ) -> list[str]:
        store = self._store
        unended = [job for job in self._meant(ids, flow) if job.state not in ENDED]
        self._tell(flow, "cancel", unended, data)
        for job in unended:
            if job.state is State.RUNNING:
                store.asked.add(job.id)
                store.record("cancel", job, data=data)
        idle = [job for job in unended if job.state is not State.RUNNING]
        store.cancel(idle, "cancelled", data)
        return [job.id for job in unended]

    def retry(
        self, ids: Sequence[str], data: dict[str, str], flow: str | None, secrets: Secrets
    ) -> list[str]:
        changed = set[str]()
        asked = [job for job in self._meant(ids, flow) if flow is None or job.state in _BAD]
        now = self._store.clock.now()
        bad = [job for job in asked if job.state in _BAD]
        bodies = {job.id: with_secrets(job.body, secrets, now) for job in bad}
        stuck = {job_id for job_id, body in bodies.items() if body is None}
        for job in asked:
            if job.id not in changed | stuck:
                stored = self._store.jobs[job.id]
                again = msgspec.structs.replace(stored, body=bodies.get(job.id) or stored.body)
                changed |= self._retry(again, data, stuck)
        self._tell(flow, "retry", changed, data)
        return [job.id for job in asked if job.id in changed]

    def _retry(self, job: Job[Any], data: dict[str, str], stuck: Collection[str]) -> set[str]:
        """Make one job due now; returns every job that this changed, none if it may not be."""
        store = self._store
        now = store.clock.now()
        if job.state is State.READY and job.run_at is not None and job.run_at > now:
            store.take_out(job)
            store.make_ready(msgspec.structs.replace(job, run_at=now))
            store.record("retry", store.jobs[job.id], data=data)
            return {job.id}
        node = store.flows.node_of(job)
        if job.state not in _BAD or (
            node is not None
            and store.flows.cannot_come_good(node, lambda need: self._kept_bad(need, stuck))
        ):
            return set()
        if job.unique:
            holder = store.keys.holder(job.unique.key, now)
            if holder not in {None, job.id}:
                return set()
            if holder is None:
                store.keys.take(job, now)
        if job.task != WAIT_TASK and (node is None or node.freed):
            store.make_ready(retried(job, State.READY, now))
        else:
            store.make_wait(retried(job, State.WAITING, now))
        store.record("retry", store.jobs[job.id], data=data)
        return {job.id} | store.take_back_end(job, data)

    def _kept_bad(self, node: Node, stuck: Collection[str]) -> int:
        kept = self._store.named(node.ids())
        return sum(job.state in _BAD and job.id not in stuck for job in kept)

    def delete(
        self,
        ids: Sequence[str],
        data: dict[str, str],
        flow: str | None,
        secrets: Secrets,  # noqa: ARG002  only a retry needs them
    ) -> list[str]:
        store = self._store
        meant = self._meant(ids, flow)
        gone = {job.id: job for job in meant if flow is not None or job.state is not State.RUNNING}
        for job in gone.values():
            store.take_out(job)
            store.take_away(job)
            store.keys.release(job, "started", "ended")
            del store.jobs[job.id]
            store.notes.pop(job.id, None)
            store.record("delete", job, data=data)
        if flow is None:
            store.count_ends([job for job in gone.values() if job.state not in ENDED])
            store.give_up([job for job in gone.values() if job.state in _BAD])
            store.forget_lasting(gone.values())
        elif store.flows.flow(flow) is not None:
            self._tell(flow, "delete", gone, data)
            store.flows.forget(flow)
        store.wipe(gone)
        return list(gone)

    def _meant(self, ids: Sequence[str], flow: str | None) -> list[Job[Any]]:
        return self._store.named(ids if flow is None else self._store.flows.ids(flow))

    def _tell(
        self, flow: str | None, says: str, changed: Collection[Any], data: dict[str, str]
    ) -> None:
        if flow is not None and (changed or says == "delete"):
            told = {name: data[name] for name in ("author", "reason")}
            self._store.flows.tell(flow, says, **told)
