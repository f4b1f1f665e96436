"""The plainest reading of the protocol: dictionaries under one lock.

Each verb is one step. Nothing here is clever, on purpose: the other brokers are compared with this
one, operation by operation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.broker.checks import check_action, check_whole_flow
from penstock.broker.filter import Filter
from penstock.broker.newest_first import below, made
from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.records import Record, Records
from penstock.broker.slice import check_last
from penstock.broker.traits import ONE_PLACE, Traits
from penstock.broker.values import (
    RETENTION_SECONDS,
    Action,
    Batch,
    Claimed,
    Enqueued,
    Renewed,
    Settlement,
    Wanted,
)
from penstock.broker.views import (
    MEASURED,
    Count,
    Event,
    Note,
    Page,
    Why,
    WorkerRow,
    audit_data,
    author_and_reason,
)
from penstock.broker.worker_lease import recovered, recovered_unseen
from penstock.brokers.memory.claiming import MemoryClaims
from penstock.brokers.memory.containers import lane_of
from penstock.brokers.memory.job_actions import Act, MemoryJobActions
from penstock.brokers.memory.key_turns import Turns
from penstock.brokers.memory.lake_marks import Marks
from penstock.brokers.memory.moving import fenced
from penstock.brokers.memory.plain_records import MemoryRecords
from penstock.brokers.memory.reading import MemoryReading
from penstock.brokers.memory.rules import MemoryRules
from penstock.brokers.memory.schedules import MemorySchedules
from penstock.brokers.memory.signals import signal
from penstock.brokers.memory.staging import MemoryStaging
from penstock.brokers.memory.store import MemoryStore
from penstock.brokers.positions import own
from penstock.errors import Refused
from penstock.flows.flow import Flow, FlowPage, FlowRow, JobOutput, check_flow
from penstock.job import Job, Outcome, Parcel, State, put_back
from penstock.operate.why import explain, full_limit
from penstock.rules.key_order import policies
from penstock.rules.limits import Limits
from penstock.rules.queue_turns import QueueTurns
from penstock.rules.rule import RuleKind, rule_over_job
from penstock.schedules.schedule import Decision, Schedule

R = TypeVar("R", bound=Record)

MOST_FOUND = 1000
POLL_SECONDS = 2.0
_LETTING_GO = (RuleKind.LIMIT, RuleKind.ORDER)


class MemoryBroker(MemoryStaging, MemoryReading):
    """Jobs in this process; safe between threads, gone when the process ends."""

    def __init__(
        self,
        clock: AnyClock = SYSTEM_CLOCK,
        retention: float = RETENTION_SECONDS,
        store: MemoryStore | None = None,
    ) -> None:
        self.clock = clock
        # Re-entrant: a signal handler may call wake() while this thread is inside a verb.
        self._lock = threading.Condition(threading.RLock())
        self._store = MemoryStore(clock) if store is None else store
        self._rules = MemoryRules(self._store)
        self._schedules = MemorySchedules(self._store)
        self._marks = Marks(self._store)
        plain = partial(MemoryRecords, self._store, self._rules)
        self._records = Records(self._rules, self._schedules, self._marks, plain)
        actions = MemoryJobActions(self._store)
        self._actions: dict[Action, Act] = {
            "cancel": actions.cancel,
            "retry": actions.retry,
            "delete": actions.delete,
        }
        self.traits = Traits(
            name="the memory broker",
            capabilities=frozenset({*ONE_PLACE, "moves", "quotas"}),
            retention=retention,
            poll_seconds=lambda: POLL_SECONDS,
            rules_version=lambda: self._store.rules_version,
            sealed_apps=lambda: frozenset(self._store.sealed_apps),
            mark_sealed=self._store.mark_sealed,
        )
        self._store.report_end = self._report_end
        self._turns = Turns(self._store)
        self._claims = MemoryClaims(self._store, self._rules, self._turns, QueueTurns())
        self._seen = threading.local()

    def _report_end(self, job: Job[Any]) -> None:
        if self.traits.ended is not None:
            self.traits.ended(job)

    # Hand over

    @fenced
    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        if connection is not None:
            raise Refused(
                f"{self.traits.name} has no transaction to join: leave out connection=, or use a "
                "store in the application's own database"
            )
        with self._lock:
            now, store = self.clock.now(), self._store
            offered = self._check(jobs, now)
            before = {job.id for job in offered if job.id in store.sent}
            if flow is not None:
                check_flow(flow, jobs)
                check_whole_flow(flow.id, flow.jobs, before)
                if before:
                    return Enqueued(frozenset(before))
            count = store.count_on(batch, len(offered), now)
            standing = store.take_in(offered, flow, now)
            self._lock.notify_all()
            return Enqueued(frozenset(before), standing, count)

    # Work

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        with self._lock:
            accepted = self.settle(settlements) if settlements else []
            jobs = [self._claims.claim(each) for each in wanted]
            times = [at for each in wanted if (at := self._claims.next_at(each)) is not None]
            return Claimed(jobs, accepted, min(times, default=None))

    @fenced
    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        with self._lock:
            accepted = [self._store.settle(job, outcome) for job, outcome in pairs]
            if any(rule.kind in _LETTING_GO for rule in self._rules.all()):
                self._store.hints += 1  # what ended may have made room, or let its key go
            self._lock.notify_all()
            return accepted

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        with self._lock:
            store = self._store
            given_up = frozenset(row.id for row in workers if row.id in store.given_up)
            cancelled: set[str] = set()
            for row in workers:
                store.given_up.pop(row.id, None)
                store.keep_alive(row)
                for job in store.held_by(row.id):
                    if holding is not None and job.id not in holding:
                        store.settle(job, put_back("stray"))
                    elif job.id in store.asked:
                        cancelled.add(job.id)
            self._lock.notify_all()
            return Renewed(frozenset(cancelled), given_up)

    @fenced
    def note(self, job: Job[Any], note: Note) -> bool:
        with self._lock:
            running = self._store.running(job)
            if running is None:
                return False
            note = msgspec.structs.replace(note, at=note.at or self.clock.now())
            if note.kind == "state":
                return self._store.flows.merge(running, note.value, self.clock.now())
            if note.kind != "event":
                kept = msgspec.structs.replace(note, told=True)
                self._store.notes[job.id][note.kind, note.name] = kept
            if note.kind == "event" or (note.kind == "progress" and note.told):
                data = {"name": note.name, "value": msgspec.Raw(note.value)}
                self._store.record(note.kind, running, at=note.at, worker=running.worker, data=data)
            return True

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:  # noqa: ARG002  a hint may come for nothing
        with self._lock:
            seen = getattr(self._seen, "hints", 0)
            self._lock.wait_for(lambda: self._store.hints != seen, timeout)
            self._seen.hints = self._store.hints
            return self._store.hints != seen

    def wake(self) -> None:
        with self._lock:
            self._store.hints += 1
            self._lock.notify_all()

    # Look after

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        with self._lock:
            store, monotonic = self._store, self.clock.monotonic()
            store.expire()
            if dead is not None:
                return self._give_up(dead, lambda job: recovered(job, started))
            caller = store.workers.get(by) if by is not None else None
            if by is not None and (caller is None or not caller.lease.may_recover(monotonic)):
                return 0
            gone = [
                (name, partial(recovered_unseen, began=worker.row.began))
                for name, worker in store.workers.items()
                if not worker.lease.alive(monotonic)
            ]
            return sum(self._give_up(name, outcome_of) for name, outcome_of in gone)

    def _give_up(self, worker: str, outcome_of: Callable[[Job[Any]], Outcome]) -> int:
        store = self._store
        if store.workers.pop(worker, None) or worker in store.given_up:
            store.given_up[worker] = self.clock.now()
        jobs = store.held_by(worker)
        for job in jobs:
            outcome = outcome_of(job)
            store.settle(job, outcome)
            if outcome.lapses:
                self._report_end(store.jobs[job.id])
        del store.held[worker]
        self._lock.notify_all()
        return len(jobs)

    def prune(self, before: float) -> int:
        with self._lock:
            store, rows = self._store, self._store.rows()
            store.expire()
            store.pruned_before = max(store.pruned_before, before)
            self._marks.write_gaps(before)
            store.forget_ended(before, self._marks.hold)
            store.forget_kept_secrets()
            store.forget_notes()
            store.flows.forget_states(self.clock.now())
            store.forget_sent(before)
            store.forget_old(before)
            self._forget_staged()
            return rows - store.rows()

    @fenced
    def act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> list[str]:
        check_action(action)
        asked = author_and_reason(author, reason, flow or part_of)
        with self._lock:
            done = self._actions[action](ids, asked, flow, secrets or {})
            self._lock.notify_all()
            return done

    @fenced
    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        with self._lock:
            ended = signal(self._store, name, value, author, reason)
            self._lock.notify_all()
            return ended

    @fenced
    def put(self, record: R, author: str = "", reason: str = "") -> R:
        with self._lock:
            return self._records.put(record, author, reason)

    @fenced
    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        with self._lock:
            cleared = self._records.clear(kind, record_id, author, reason)
            if cleared:
                self.wake()
            return cleared

    def records(self, kind: type[R]) -> list[R]:
        with self._lock:
            return self._records.records(kind)

    @fenced
    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        with self._lock:
            return self._schedules.decide(schedule, decisions, self.enqueue, self.act)

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        with self._lock:
            self._store.record(kind, data=audit_data(kind, author, reason, data))

    # Look

    def get(self, job_id: str) -> Job[Any] | None:
        with self._lock:
            return self._store.jobs.get(job_id)

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        with self._lock:
            return {id: job for id in ids if (job := self._store.jobs.get(id)) is not None}

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        with self._lock:
            kept = self._store.notes.get(job_id, {}).values()
            return sorted(
                (note for note in kept if kind in {None, note.kind}), key=lambda note: note.at
            )

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        with self._lock:
            limit = min(max(limit, 1), MOST_FOUND)
            older = below(after)
            jobs = [job for job in self._store.jobs.values() if older.holds(job)]
            jobs.sort(key=made, reverse=True)
            found: list[Job[Any]] = []
            for examined, job in enumerate(jobs, 1):
                if filter.matches(job):
                    found.append(job)
                if len(found) == limit and examined < len(jobs):
                    return Page(found, str(made(job)), examined)
            return Page(found, None, len(jobs))

    def count(self) -> list[Count]:
        with self._lock:
            now, rules = self.clock.now(), self._rules.all()
            counts: dict[tuple[str, str, str], dict[str, int]] = {}
            limits = Limits(rules, self._store.use_of, self.clock.monotonic())
            for job in sorted(self._store.jobs.values(), key=lambda job: (job.queue, job.task)):
                word = str(job.state)
                if job.state is State.READY:
                    if job.run_at is not None and job.run_at > now:
                        word = "scheduled"
                    elif rule_over_job(rules, job, now):
                        word = "paused"
                    elif limits.rules and not self._store.leaves_room(limits, job):
                        word = "limited"
                elif job.state in {State.SUCCEEDED, State.CANCELLED}:
                    continue
                row = counts.setdefault((job.queue, job.task, job.app), {})
                row[word] = row.get(word, 0) + 1
            return [Count(*names[:2], app=names[2], **row) for names, row in sorted(counts.items())]

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        kinds = check_last(after, job, kind, before)
        with self._lock:
            rows = [row for row in self._store.history if job in {None, row.job}]
            if after is None:
                end = None if before is None else own(before)
                rows = [
                    row
                    for row in rows
                    if (row.kind in kinds if kinds else row.kind not in MEASURED)
                    and (end is None or row.position < end)
                ]
                return rows[len(rows) - min(max(limit, 0), len(rows)) :]
            if own(after) > self._store.newest:
                raise ahead(after, self._store.newest)
            return [row for row in rows if row.position > after][: max(limit, 0)]

    def why(self, job_id: str) -> Why:
        with self._lock:
            now, job = self.clock.now(), self._store.jobs.get(job_id)
            ahead = None
            if job is not None and job.state is State.READY:
                ahead = self._store.lines[lane_of(job)].ahead_of(job, now)
            needs = [] if job is None else self._store.flows.needs_of(job)
            limits = Limits(self._rules.all(), self._store.use_of, self.clock.monotonic())
            full = None if job is None else full_limit(limits, job, self._store.holders)
            policy = None if job is None else policies(self._rules.all()).get(job.queue)
            behind = self._turns.behind(job, policy) if job and policy else None
            return explain(
                job_id, job, now, self._rules.all(), self.workers(), ahead, needs, full, behind
            )

    def flow(self, flow_id: str) -> FlowRow | None:
        with self._lock:
            return self._store.flows.flow(flow_id)

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        with self._lock:
            return self._store.flows.page(name, find or {}, after, min(max(limit, 1), MOST_FOUND))

    def outputs(self, node: str) -> list[JobOutput]:
        with self._lock:
            known = self._store.flows.node(node)
            return [] if known is None else [self._store.output(job_id) for job_id in known.ids()]

    def workers(self) -> list[WorkerRow]:
        with self._lock:
            store, monotonic = self._store, self.clock.monotonic()
            return [
                msgspec.structs.replace(
                    worker.row,
                    running=len(store.held.get(name, ())),
                    alive=worker.lease.alive(monotonic),
                )
                for name, worker in sorted(store.workers.items())
            ]

    def close(self) -> None:
        self.wake()
