"""Where jobs stand, and how one moves: what the verbs of the memory broker are made of.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSet,
    Sequence,
)
from typing import Any

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.checks import check_batch
from penstock.broker.lake_mark import Mark
from penstock.broker.position import Position
from penstock.broker.records import PLAIN_KINDS
from penstock.broker.settlement import (
    REPLACED,
    as_told,
    cancelled,
    kept_unique,
    leaves_history,
    may_be_replaced,
    replaced,
    retried,
    settled,
)
from penstock.broker.span_stats import Gauged
from penstock.broker.values import Batch
from penstock.broker.views import QUEUED, Event, Note, WorkerRow
from penstock.broker.worker_lease import renewed
from penstock.brokers.memory.containers import (
    PublishedWrite,
    RegisteredWorker,
    UniqueKeys,
    WaitingLine,
    lane_of,
)
from penstock.brokers.memory.flows import MemoryFlows, StoredNode
from penstock.brokers.memory.forgetting import MemoryForgetting
from penstock.brokers.positions import number_of, position_text
from penstock.enqueue.ids import time_of
from penstock.enqueue.secrets import gone_secrets, redact
from penstock.flows.flow import Flow, JobOutput
from penstock.flows.spawn_links import spawned_event
from penstock.job import ENDED, Job, Lane, Outcome, Parcel, State
from penstock.rules.limits import Limits, Use, slack_of
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule


class MemoryStore(MemoryForgetting):
    """Dictionaries of jobs by id, and of everything that points at them."""

    def __init__(self, clock: AnyClock) -> None:
        self.clock = clock
        self.jobs: MutableMapping[str, Job[Any]] = {}
        self.lines: MutableMapping[Lane, WaitingLine] = {}
        # worker -> the jobs it holds
        self.held: MutableMapping[str, MutableMapping[str, None]] = defaultdict(dict)
        self.asked: MutableSet[str] = set()  # running jobs that somebody asked to cancel
        self.expiring: MutableSet[str] = set()  # jobs not started that may expire
        self.sent: MutableMapping[str, float] = {}
        self.pruned_before = 0.0  # ids from before are not remembered any more
        self.keys = UniqueKeys()
        self.flows = MemoryFlows(self._flow_says, {}, {}, clock.now)
        self.rules: MutableMapping[str, Rule] = {}
        self.rules_version = 0
        self.schedules: MutableMapping[str, Schedule] = {}
        self.marks: MutableMapping[str, Mark] = {}
        self.plain_records: Mapping[str, MutableMapping[str, Any]] = {
            kind.name: {} for kind in PLAIN_KINDS
        }
        self.staged: MutableMapping[str, dict[str, dict[str, Job[Any]]]] = {}  # by write and part
        self.staged_at: MutableMapping[str, float] = {}
        self.batches: MutableMapping[str, tuple[int, float]] = {}
        self.published: MutableMapping[str, PublishedWrite] = {}
        self.workers: MutableMapping[str, RegisteredWorker] = {}
        self.given_up: MutableMapping[str, float] = {}
        self.report_end: Callable[[Job[Any]], None] = lambda _: None
        self.notes: MutableMapping[str, MutableMapping[tuple[str, str], Note]] = defaultdict(dict)
        self.history: list[Event] = []
        # By rule and key.
        self.starts: MutableMapping[tuple[Hashable, str | None], list[tuple[float, int]]] = {}
        self.free_in: float | None = None  # seconds until a rate lets more start; of the last claim
        self.sealed_apps: MutableMapping[str, float] = {}  # when each was last seen to encrypt
        self.hints = 0  # changes whenever there may be something to claim
        self.gauged = Gauged()
        self._position = 0
        self._id = ""

    @property
    def id(self) -> str:
        """The store's own; positions of its history are its alone."""
        self._id = self._id or str(uuid.uuid4())
        return self._id

    @property
    def newest(self) -> Position:
        """The last position that was given to a row of the history."""
        return position_text(self._position)

    def rows(self) -> int:
        """How much is stored, for saying how much was pruned."""
        notes = sum(map(len, self.notes.values()))
        kept = (self.jobs, self.history, self.sent, self.batches, self.published, self.flows)
        return sum(map(len, kept)) + notes

    def named(self, ids: Sequence[str]) -> list[Job[Any]]:
        return [self.jobs[job_id] for job_id in dict.fromkeys(ids) if job_id in self.jobs]

    def output(self, job_id: str) -> JobOutput:
        """The output of a job, for whoever needs it."""
        job = self.jobs.get(job_id)
        if job is None:
            return JobOutput(job_id, None, None)
        return JobOutput(job_id, job.state, job.result if job.state is State.SUCCEEDED else None)

    def held_by(self, worker: str) -> list[Job[Any]]:
        """The jobs that a worker holds."""
        return [self.jobs[job_id] for job_id in self.held[worker]]

    def running(self, claimed: Job[Any]) -> Job[Any] | None:
        """The job as it is stored, if this attempt still holds it."""
        job = self.jobs.get(claimed.id)
        fenced = job and job.state is State.RUNNING and job.attempt == claimed.attempt
        return job if fenced else None

    def due(self, lane: Lane) -> Iterator[Job[Any]]:
        """The due jobs of a lane in order; each may leave it before the next is asked for."""
        line = self.lines.get(lane)
        for _, job_id in line.due(self.clock.now()) if line else ():
            yield self.jobs[job_id]

    def make_ready(self, job: Job[Any]) -> None:
        self.jobs[job.id] = job
        self.lines.setdefault(lane_of(job), WaitingLine()).add(job)
        if job.expires_at is not None:
            self.expiring.add(job.id)
        self.hints += 1

    def make_wait(self, job: Job[Any]) -> None:
        """Keep a job of a flow until its needs have ended, or its signal has come."""
        self.jobs[job.id] = msgspec.structs.replace(job, state=State.WAITING)
        if job.expires_at is not None:
            self.expiring.add(job.id)

    def take_out(self, job: Job[Any]) -> None:
        """Take a ready job out of its lane; one that stands elsewhere is left there."""
        self.expiring.discard(job.id)
        if job.state is not State.READY:
            return
        lane = lane_of(job)
        self.lines[lane].remove(job)
        if not self.lines[lane]:
            del self.lines[lane]

    def take_away(self, job: Job[Any]) -> None:
        """Take a running job from its worker, which will find that it is stale."""
        if job.state is State.RUNNING:
            del self.held[job.worker or ""][job.id]
            self.asked.discard(job.id)

    def start(self, job: Job[Any], worker: str, within: float | None = None) -> Job[Any]:
        """Hand a ready job to a worker."""
        self.take_out(job)
        self.keys.release(job, "started")
        self.held[worker][job.id] = None
        running = msgspec.structs.replace(
            job,
            state=State.RUNNING,
            attempt=job.attempt + 1,
            claimed_at=self.clock.now(),
            worker=worker,
        )
        self.jobs[job.id] = running
        if within is None:
            return running
        return msgspec.structs.replace(running, start_within=within)

    def use_of(self, rule: Rule, key: str | None) -> Use:
        """What stands against a limit, of this key or in all."""
        running = sum(self.holders(rule, key).values())
        return Use(running, self.starts.get((rule.identity, key), []))

    def holders(self, rule: Rule, key: str | None) -> dict[str, int]:
        """How many jobs under this limit each worker holds."""
        found: dict[str, int] = {}
        for worker, held in self.held.items():
            jobs = [self.jobs[job_id] for job_id in held]
            number = sum(rule.fits(job) and key in {None, job.key} for job in jobs)
            if number:
                found[worker] = number
        return found

    def leaves_room(self, limits: Limits, job: Job[Any]) -> bool:
        """Whether its limits let the job start; if so it is counted, else when they will."""
        lane = lane_of(job)
        rooms = [limits.room(lane, 1)]
        if job.key is not None:
            rooms.append(limits.room(lane, 1, job.key))
        if all(room.jobs > 0 for room in rooms):
            limits.took(lane, 1, job.key)
            return True
        times = [room.free_in for room in rooms if room.jobs <= 0]
        if None not in times:
            free_in = max(time for time in times if time is not None)
            self.free_in = free_in if self.free_in is None else min(free_in, self.free_in)
        return False

    def write_down(self, started: Mapping[tuple[Rule, str | None], int]) -> None:
        """Remember what was started under rates, for as long as it counts."""
        now = self.clock.monotonic()
        for (rule, key), jobs in started.items():
            if rule.rate is not None:
                seconds = rule.rate[1]
                starts = self.starts.get((rule.identity, key), [])
                kept = [start for start in starts if start[0] > now - seconds - slack_of(seconds)]
                self.starts[rule.identity, key] = [*kept, (now, jobs)]

    def settle(self, claimed: Job[Any], outcome: Outcome) -> bool:
        """Move a running job on, if this attempt still holds it."""
        job = self.running(claimed)
        if job is None:
            return False
        now = self.clock.now()
        after = settled(job, outcome, now, cancelled=job.id in self.asked)
        ended = after.state in ENDED
        del self.held[job.worker or ""][job.id]
        self.asked.discard(job.id)
        if leaves_history(outcome, after):
            kept = ended and outcome.keep
            self.record(
                "attempt",
                as_told(after),
                at=now if outcome.ended_at is None else outcome.ended_at,
                started_at=outcome.started_at,
                worker=job.worker,
                error=outcome.error,
                body=redact(job.body) if kept else None,
                result=outcome.result if kept else None,
            )
        waits = after.state is State.WAITING
        if outcome.spawned and (waits or after.state in {State.SUCCEEDED, State.READY}):
            self.record("event", job, data=msgspec.Raw(spawned_event(outcome)))
            self.take_in(unpacked(outcome.spawned), outcome.flow, now, parent=job, waits=waits)
        if waits:
            self.make_wait(after)
            return True
        if not ended:
            self.make_ready(after)
            return True
        self.keys.release(after, "started", "ended")
        self.jobs[job.id] = after
        if not outcome.keep:
            del self.jobs[job.id]
        self.count_ends([after])
        return True

    def take_in(
        self,
        jobs: Iterable[Job[Any]],
        flow: Flow | None,
        now: float,
        parent: Job[Any] | None = None,
        *,
        waits: bool = False,
    ) -> dict[str, str]:
        """Store new jobs; returns those that are not, because another holds their unique key."""
        waiting: frozenset[str] = frozenset()
        if flow is not None:
            node = None if parent is None or waits else self.flows.node_of(parent)
            self.flows.add(flow, now, node, waits=waits)
            waiting = frozenset(id for node in flow.nodes if node.waits for id in node.ids())
        standing: dict[str, str] = {}
        for offered in jobs:
            job = as_new(offered, now)
            if job.id in self.sent:
                continue
            if job.unique and (holder := self.keys.holder(job.unique.key, now)):
                old = self.jobs.get(holder)
                if not job.unique.replace or old is None or not may_be_replaced(old):
                    standing[job.id] = holder
                    continue
                self._cancel(old, REPLACED, {})
                self.jobs[old.id] = replaced(old, now)
                if offered.run_at is None:
                    job = msgspec.structs.replace(job, run_at=old.run_at)
            if job.unique and job.unique.replace:
                job = msgspec.structs.replace(job, unique=kept_unique(job.unique))
            self.sent[job.id] = job.enqueued_at
            self.keys.take(job, now)
            if job.id in waiting:
                self.make_wait(job)
            else:
                self.make_ready(job)
            if job.detached:
                self.record("event", self.jobs[job.id], data=msgspec.Raw(QUEUED))
        return standing

    def count_ends(self, ended: Iterable[Job[Any]]) -> None:
        """Count jobs of flows that have ended, however they did; others run, or end, with them."""
        now = self.clock.now()
        decided: list[StoredNode] = []
        for job in ended:
            if (node := self.flows.node_of(job)) is not None:
                decided += self.flows.count_end(node, now, good=job.state is State.SUCCEEDED)
        self._decide(decided)

    def give_up(self, gone: Iterable[Job[Any]]) -> None:
        """Jobs that ended without success are gone: nobody need wait until they are retried."""
        for job in gone:
            if (node := self.flows.node_of(job)) is not None:
                self._decide(self.flows.give_up(node))

    def _decide(self, decided: list[StoredNode]) -> None:
        now = self.clock.now()
        while decided:  # a list, and no call of itself: a chain may be longer than the stack
            node = decided.pop()
            for job in self.named(node.node.ids()):
                if job.state is not State.WAITING:
                    continue
                if node.freed:
                    # Due from now: that it waited for others does not make it older.
                    run_at = max(now, job.run_at or now)
                    self.make_ready(msgspec.structs.replace(job, state=State.READY, run_at=run_at))
                else:
                    self._cancel(job, "needs", {})
                    decided += self.flows.count_end(node, now, good=False)

    def take_back_end(self, ended: Job[Any], data: Any) -> set[str]:
        """An ended job of a flow is stored again; what was cancelled because of it waits again."""
        revived: set[str] = set()
        node = self.flows.node_of(ended)
        waiting = [] if node is None else self.flows.take_back_end(node)
        while waiting:
            node = waiting.pop()
            for job in self.named(node.node.ids()):
                needed = job.state is State.CANCELLED and job.reason == "needs"
                if needed and not gone_secrets(job.body, self.clock.now()):
                    self.make_wait(retried(job, State.WAITING, self.clock.now()))
                    self.record("retry", self.jobs[job.id], data=data)
                    revived.add(job.id)
                    waiting += self.flows.take_back_end(node)
        return revived

    def cancel(self, jobs: Sequence[Job[Any]], reason: str, data: Any = None) -> None:
        """End jobs that do not run."""
        for job in jobs:
            self._cancel(job, reason, data)
        self.count_ends([self.jobs[job.id] for job in jobs])

    def _cancel(self, job: Job[Any], reason: str, data: Any) -> None:
        self.take_out(job)
        self.keys.release(job, "started", "ended")
        after = cancelled(job, reason, self.clock.now())
        self.jobs[job.id] = after
        self.record("cancel", after, data=data)
        if reason not in {"needs", REPLACED}:
            self.report_end(after)

    def expire(self) -> None:
        """End the jobs whose time to start is over."""
        now = self.clock.now()
        expiring = self.named(sorted(self.expiring))
        over = [job for job in expiring if job.expires_at is not None and job.expires_at <= now]
        self.cancel(over, "expired", {})

    def others_of_key(self, job: Job[Any]) -> Iterable[Job[Any]]:  # noqa: ARG002  all are looked at
        """Jobs that may have the key of this one, in its queue."""
        return self.jobs.values()

    def awaiting(self, signal: str) -> Iterable[Job[Any]]:  # noqa: ARG002  all are looked at
        """Jobs that may wait for this signal."""
        return self.jobs.values()

    def keep_alive(self, row: WorkerRow, claimed_at: float | None = None) -> None:
        """Register the worker, or renew its lease."""
        monotonic = self.clock.monotonic()
        before = self.workers.get(row.id)
        if before is not None:
            claimed_at = claimed_at or before.row.claimed_at
        self.workers[row.id] = RegisteredWorker(
            msgspec.structs.replace(row, claimed_at=claimed_at or row.claimed_at),
            renewed(before and before.lease, row.lease, monotonic),
        )

    def count_on(self, batch: Batch | None, rows: int, now: float) -> int:
        """How many rows of a bulk enqueue are stored, with these."""
        if batch is None:
            return 0
        stored, _ = self.batches.get(batch.id, (0, now))
        if not rows:
            return stored
        check_batch(batch.id, batch.count, stored)
        self.batches[batch.id] = (stored + rows, now)
        return stored + rows

    def rows_after(self, position: int) -> list[Event]:
        """The rows of the history that follow."""
        return [row for row in self.history if number_of(row.position) > position]

    def record(
        self,
        kind: str,
        job: Job[Any] | None = None,
        *,
        at: float | None = None,
        data: Any = None,
        **fields: Any,
    ) -> None:
        """Write one row of history."""
        if job is not None:
            fields |= {
                "job": job.id,
                "app": job.app,
                "queue": job.queue,
                "task": job.task,
                "version": job.version,
                "priority": job.priority,
                "attempt": job.attempt,
                "failures": job.failures,
                "lapses": job.lapses,
                "key": job.key,
                "state": job.state,
                "reason": job.reason,
                "enqueued_at": job.enqueued_at,
                "run_at": job.enqueued_at if job.run_at is None else job.run_at,
                "tags": job.tags,
            }
        encoded = None if data is None else msgspec.json.encode(data)
        self._write(kind, self.clock.now() if at is None else at, encoded, **fields)

    def _flow_says(self, flow: str, data: bytes) -> None:
        self._write("flow", self.clock.now(), data, job=flow)

    def _write(self, kind: str, at: float, data: bytes | None, **fields: Any) -> None:
        self._position += 1
        event = Event(position=self.newest, kind=kind, at=at, data=data, **fields)
        self.history.append(event)


def unpacked(jobs: Iterable[Job[Any] | Parcel]) -> Iterator[Job[Any]]:
    """Every job one by one, parcels opened."""
    for job in jobs:
        if isinstance(job, Job):
            yield job
            continue
        lane = job.lane
        for job_id, body in zip(job.ids(), job.bodies, strict=True):
            yield Job(
                task=lane.task,
                body=body,
                id=job_id,
                queue=lane.queue,
                version=lane.version,
                priority=lane.priority,
                runs_on=lane.runs_on,
                app=lane.app,
            )


def as_new(job: Job[Any], now: float) -> Job[Any]:
    """The job as its caller made it, with what the store adds at the beginning."""
    made_at = time_of(job.id)
    enqueued_at = now if made_at is None else made_at
    # At once means now, also for an id from a clock that is a little ahead.
    run_at = min(enqueued_at, now) if job.run_at is None else job.run_at
    return Job(
        task=job.task,
        body=job.body,
        id=job.id,
        queue=job.queue,
        version=job.version,
        priority=job.priority,
        run_at=None if job.plain and made_at is not None else run_at,
        key=job.key,
        unique=job.unique,
        runs_on=job.runs_on,
        app=job.app,
        tags=job.tags,
        search=job.search,
        expires_at=job.expires_at,
        at_most_once=job.at_most_once,
        enqueued_at=enqueued_at,
    )
