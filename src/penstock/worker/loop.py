"""The worker's loop: claims jobs, gives them to hands, settles their outcomes. One thread.

    claim -> chunks -> hands -> done -> settle, in the same call as the next claim

The loop waits for one thing at a time: for a hint of the store while it has room for jobs, for the
queue `done` otherwise. Whoever puts a chunk into `done` also wakes the store's wait if need be.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import secrets
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.app.locate import loading, target_of
from penstock.app.version import RELEASE
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import WorkerRow
from penstock.enqueue.tracing import told_settled
from penstock.errors import Refused
from penstock.job import Job, put_back
from penstock.worker.capacity import Capacity
from penstock.worker.chunk import Chunk
from penstock.worker.claim_plan import ClaimPlan, ClaimRequest
from penstock.worker.drain_check import anything_left
from penstock.worker.failure_log import FailureLog
from penstock.worker.hand_context import HandContext
from penstock.worker.hand_pool import HandPool
from penstock.worker.health import Health
from penstock.worker.hint_backoff import HintBackoff
from penstock.worker.memory_use import memory_of
from penstock.worker.modes import modes_and_batches
from penstock.worker.outbox import Outbox
from penstock.worker.running_slots import Flag, RunningSlots, Vitals
from penstock.worker.start_check import StartCheck
from penstock.worker.stop_phases import ENDING_SECONDS, LAST_SECONDS, Phase, StopPhases
from penstock.worker.store_calls import StoreCalls
from penstock.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from penstock.app.app import App

_CANCEL_SECONDS = 1.0  # how often the store is asked what was cancelled
_NOT_STARTED_SECONDS = 0.25  # how often jobs that were not started in time are put back
_CLOSE_SECONDS = 5.0  # for idle threads to end
_COUNT_SECONDS = 0.1  # how often a draining worker counts what is left

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic

Detached = Literal["leave", "beside", "here"]


class Worker:
    """Runs an app's jobs in this process, from `work()` until it is stopped or drained.

    `queues` None is every queue. `lease` None: as its queues say. `drain`: end when nothing is left
    to run now or later. `grace`: how long running jobs may take to end after `stop`; the rest is
    put back, uncounted.
    `heartbeat=False`: a supervisor renews the lease, and shares `slots`. `on_stuck` is called when
    a job does not end at its timeout, and has this process replaced; without it a new thread takes
    over. Detached jobs are left to other workers ("leave"), run by a launcher beside this worker,
    for which `drain` waits ("beside"), or run here as if they were not detached ("here").
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Collection[str] | None = None,
        threads: int = 10,
        async_slots: int = 100,
        tags: Collection[str] = (),
        lease: float | None = None,
        grace: float = 25.0,
        drain: bool = False,
        id: str | None = None,
        heartbeat: bool = True,
        slots: RunningSlots | None = None,
        target: str | None = None,
        retention: float | None = RETENTION_SECONDS,
        on_stuck: Callable[[str], None] | None = None,
        detached: Detached = "leave",
        group: str = "",
    ) -> None:
        if threads < 1 or async_slots < 1:
            raise Refused(f"a worker needs at least one of each: {threads=}, {async_slots=}")
        self.app = app
        self.broker = app.broker
        self._group, self._capacity = group, Capacity(threads, async_slots)
        self._host = socket.gethostname()  # once: the call releases the interpreter
        self.id = id or f"{self._host}-{os.getpid()}-{secrets.token_hex(3)}"
        self.queues = None if queues is None else tuple(sorted(queues))
        self._own_lease = lease
        self.heartbeat = heartbeat
        self.retiring = False
        self.drained = False  # it ended because no job was left
        self.clean = True  # no job was left running when `work` returned
        self.health = Health(self.broker.clock)
        self._drain = drain
        self._on_stuck = on_stuck
        self._detached = detached
        self._tags = frozenset(tags)
        self._started_at = self.broker.clock.now()
        self._stop = StopPhases(grace)
        self._own_slots = slots is None
        self._slots = slots or RunningSlots(threads + async_slots)
        self._done: queue.SimpleQueue[Chunk | Capacity | None] = queue.SimpleQueue()
        self._listening = False
        self._start_check = StartCheck(self.broker)
        self._store = StoreCalls(self.broker, self.health, told_settled(app))
        self._target = target or target_of(app)
        processes, apart = self._target is not None, self.broker.traits.apart
        self._claims = ClaimPlan(threads, async_slots, processes=processes, apart=apart)
        upkeep = partial(Upkeep, declared=app.schedules.declared, subscribe=app.topics.declare)
        own = (self.id, retention, self.lease)
        self._upkeep = upkeep(self.broker, self.broker.clock, *own, sending=app.sending)
        context = HandContext(app, self._slots, self._start_check, self._report, self._target)
        self._pool = HandPool(context, threads, async_slots, self._stuck, self._publish)
        self._failures = FailureLog(app)
        self._outbox = Outbox(self._failures.log)
        self._tasks: dict[str, int] = {}
        self._began: tuple[str, ...] = ()  # as the last renewal named them
        self._hints = HintBackoff(free=4, first=0.001, longest=0.05)
        self._count_at = self._renewed_at = self._upkeep_at = self._put_back_at = 0.0

    @property
    def lease(self) -> float:
        """Its own, or that of its queues."""
        return self._own_lease or self.app.queues.lease(self.queues)

    @property
    def stale(self) -> int:
        """Outcomes that the store refused, because a later attempt holds the job."""
        return self._store.stale

    @property
    def settled(self) -> int:
        """Outcomes that the store accepted."""
        return self._store.settled

    @property
    def row(self) -> WorkerRow:
        """This worker's row in the store."""
        return WorkerRow(
            id=self.id,
            app=self.app.name,
            tasks=self._tasks,
            places=self.app.task_places,
            tags=self._tags,
            queues=self.queues,
            host=self._host,
            pid=os.getpid(),
            lease=self.lease,
            started_at=self._started_at,
            penstock=RELEASE,
            code=self.app.code,
            claimed_at=self.health.claimed_at,
            running=self._claims.running(),
            began=self._began,
            stale=self._store.stale,
            put_back=self._store.put_backs.by_queue,
            group=self._group,
            **msgspec.structs.asdict(self._capacity),
        )

    def change(self, capacity: Capacity) -> None:
        """Run so many jobs at a time from now on, or claim nothing; what runs goes on."""
        self._done.put(capacity)
        self.broker.wake()

    def stop(self, *, now: bool = False) -> None:
        """Claim nothing more and end; a second call, or `now`: put back what runs at once.

        Safe in a signal handler.
        """
        self._stop.ask(now=now)
        self._done.put(None)
        self.broker.wake()

    def work(self) -> None:
        """Run jobs until stopped or drained; then all that was claimed is settled or put back."""
        if loading() is not None:
            raise RuntimeError(
                f"work() was called while {loading()} was being imported; "
                'put it under `if __name__ == "__main__":`'
            )
        self._refresh_tasks()
        self.app.schedules.declared()  # a wrong schedule is refused now
        self._publish()  # before the first job, which may kill this process
        self._pool.start()
        with self._stop.deadline.within():
            try:
                while self._stop.phase is not Phase.OVER:
                    try:
                        self._step()
                    except KeyboardInterrupt as error:
                        self._store.failed(error)  # the store's answer may be lost
                        self.stop()
            finally:
                self._close()

    def _refresh_tasks(self) -> None:
        tasks = self.app.known_tasks(detached=None if self._detached == "here" else False)
        if tasks == self._tasks:
            return
        self._claims.set_tasks(*modes_and_batches(self.app, tasks, self._target))
        self._tasks = tasks

    def _step(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._collect(self._done.get_nowait())
        now = monotonic()
        if now >= self._failures.due_at:
            self._failures.log_suppressed()
        self._advance_phase()
        if self._stop.phase is Phase.OVER:
            return
        for chunk in self._claims.due(now):
            self._pool.give(chunk)
        if now < self._store.retry_at:
            self._sleep(self._store.retry_at - now)
            return
        if self._renew_and_upkeep(now) and not self._settle_and_claim(now):
            self._wait(monotonic())

    def _advance_phase(self) -> None:
        """Go on to the next phase when it is time."""
        stop = self._stop
        if stop.asked and stop.phase is Phase.WORKING:
            stop.enter(Phase.DRAINING, stop.grace)
            self._start_check.closed = "shutdown"
            self.health.draining = True
            log.info(
                "draining: %d jobs have %g s to end, the rest is put back",
                self._claims.running(),
                stop.grace,
            )
            self._claims.gathering.forget()
            for chunk in list(self._claims.live.values()):
                self._put_back(chunk, "shutdown")
        if stop.phase is Phase.DRAINING and (stop.asked > 1 or stop.over()):
            stop.enter(Phase.ENDING, ENDING_SECONDS)
            self._pool.interrupt("shutdown")
        if stop.phase is Phase.ENDING and stop.over():
            stop.enter(Phase.LEAVING, LAST_SECONDS)
            self.clean = not self._pool.abandon() and self.clean
        if stop.phase and not (self._claims.live or self._outbox.pairs):
            stop.phase = Phase.OVER
        if stop.phase is Phase.LEAVING and stop.over():
            self._outbox.log_left(self.id)
            stop.phase = Phase.OVER

    def _renew_and_upkeep(self, now: float) -> bool:
        """Renew, do upkeep, put back what was not started; False if the store does not answer."""
        live = self._claims.live
        compare = self._store.unreachable or now >= self._store.compare_at
        holding = self._claims.holding() if compare else None
        if now >= self._renew_at() or holding is not None:
            self._began = self._slots.began()
            renewed = self._store.renew(self.row, holding)
            if renewed is None:
                return False
            self._renewed_at = now
            if not self._claims.requests(now):
                self.health.answered()  # every hand is busy, so no claim can report it
            self._start_check.cancelled = renewed.cancelled
            if renewed.cancelled:
                self._end_cancelled(renewed.cancelled)
        due = now >= self._upkeep_at and self._stop.phase is Phase.WORKING
        if due and not self._do_upkeep(now):
            return False
        if now >= self._put_back_at and live:
            self._put_back_at = now + _NOT_STARTED_SECONDS
            for chunk in list(live.values()):
                if chunk.jobs and now > chunk.start_until:
                    self._claims.claim_size(chunk.task).stalled()
                    self._put_back(chunk, "not started in time")
        return True

    def _do_upkeep(self, now: float) -> bool:
        self._upkeep_at = now + self._upkeep.every
        self._refresh_tasks()
        try:
            self.app.queues.refresh(self.broker, self.app.name, self._start_check.hear())
            self._upkeep.run_due()
        except Exception as error:
            self._store.failed(error)
            return False
        self.health.reached()
        if not self._tasks:
            self.health.answered()  # without tasks there is no claim to report it
        self._upkeep_at = min(self._upkeep_at, now + self._upkeep.seconds_left())
        return True

    def _end_cancelled(self, ids: Collection[str]) -> None:
        """End cancelled jobs: those that run, and those that wait in a batch."""
        self._pool.interrupt("cancelled", ids)
        for chunk, jobs in self._claims.gathering.withdraw(ids):
            chunk.done.extend(map(self.app.end_hooks.cancelled, jobs))
            self._collect(chunk)

    def _renew_at(self) -> float:
        """When to renew next: every second while jobs run, to learn of cancellations."""
        if self._claims.live:
            return self._renewed_at + min(_CANCEL_SECONDS, self.lease / 3)
        return self._renewed_at + self.lease / 3 if self.heartbeat else math.inf

    def _settle_and_claim(self, now: float) -> bool:
        """Settle what has ended, claim what there is room for; False if nothing was to be done."""
        outbox = self._outbox
        if self._store.fell_due():
            self._claim_soon(now)
        requests = self._claims.requests(now) if self._stop.phase is Phase.WORKING else []
        due = [request for request in requests if now >= request.kind.due_at]
        if not due and outbox.waits(now):
            due = requests[-1:]  # the outcomes need a call anyway: claim in the same one
        for request in due:
            # Before the claim, so that a later change is noticed.
            rules = self._start_check.version()
            jobs = self._send(request)
            if jobs is None:
                return True
            self._take(jobs, request, rules)
        if outbox.overdue(now):
            self._send(None)
            return True
        return not all(request.kind.short for request in due)

    def _send(self, request: ClaimRequest | None) -> list[Job[Any]] | None:
        jobs = self._store.exchange(self._outbox.pairs, self.row, self.queues, request)
        if jobs is not None:
            self._sent()
        return jobs

    def _sent(self) -> None:
        for chunk, count in self._outbox.sent(self._store.left, monotonic()):
            self._claims.settled(chunk, count)
            self._pool.settled(chunk)

    def _take(self, jobs: Sequence[Job[Any]], request: ClaimRequest, rules: int) -> None:
        now = monotonic()
        if jobs:
            self._hints.found()
            for chunk in self._claims.take(jobs, request, rules, now):
                self._pool.give(chunk)
        poll = self.broker.traits.poll_seconds()
        # Who asked for any job and got fewer than there was room for, asked for all kinds.
        asked_all = request.sizes is None and len(jobs) < request.limit
        for kind in self._claims.kinds if asked_all else (request.kind,):
            kind.record_answer(now, len(jobs), request.limit, poll)

    def _collect(self, chunk: Chunk | Capacity | None) -> None:
        """Take over the outcomes of a chunk, and give away what its hand has not started."""
        if isinstance(chunk, Capacity):
            self._capacity = chunk
            self._claims.resize(chunk)
            self._pool.resize(chunk)
        if chunk is None or isinstance(chunk, Capacity):
            return
        now = monotonic()
        count = self._outbox.take(chunk, now)
        if chunk.finished and not chunk.counted:
            chunk.counted = True
            self._claims.hand_freed(chunk)
        if count:
            self._claims.ended(chunk, count, now)
            if not self._outbox.pairs:  # the jobs settled themselves, in a transaction of their own
                self._sent()
        if chunk.jobs and (chunk.slow or chunk.finished) and not chunk.asynchronous:
            for part in self._claims.split(chunk):
                self._pool.give(part)

    def _put_back(self, chunk: Chunk, reason: str) -> None:
        chunk.done.extend((job, put_back(reason)) for job in chunk.take_back())
        self._collect(chunk)

    def _wait(self, now: float) -> None:
        """Sleep until there is something to do."""
        claims, outbox, working = self._claims, self._outbox, self._stop.phase is Phase.WORKING
        requests = claims.requests(now) if working else []
        until = [
            now + self.lease / 3,
            self._renew_at(),
            *(request.kind.due_at for request in requests),
        ]
        until += [claims.gathering.next_due, self._failures.due_at]
        if outbox.pairs:
            until.append(outbox.flush_at)
        if claims.live:
            until.append(self._put_back_at)
        until.append(self._upkeep_at if working else self._stop.until)
        if (hold_off_until := claims.hold_off_until(now)) is not None:
            until.append(hold_off_until)
        if requests and (due_in := self._store.due_in) is not None:
            until.append(now + due_in)
        if not requests or now < self._hints.ignore_until:
            if self._drain and not self._tasks and self._is_drained(now):
                return
            self._sleep(min(until) - now)
            return
        if self._drain and not claims.live:
            if now >= self._count_at and self._is_drained(now):
                return
            until.append(self._count_at)
        self._listen(min(until) - now)

    def _is_drained(self, now: float) -> bool:
        self._count_at = now + _COUNT_SECONDS
        try:
            tasks = self.app.known_tasks() if self._detached == "beside" else self._tasks
            row = msgspec.structs.replace(self.row, tasks=tasks)
            self.drained = not anything_left(self.broker, row)
        except Exception as error:
            self._store.failed(error)
        if self.drained:
            self._stop.phase = Phase.OVER
        return self.drained

    def _listen(self, timeout: float) -> None:
        self._listening = True
        try:
            if not self._done.empty() or self._stop.asked > self._stop.phase:
                return
            hint = self.broker.wait(self.queues, max(0.0, timeout))
        except Exception as error:
            self._store.failed(error)
            return
        finally:
            self._listening = False
        if hint and self._done.empty():
            self._claim_soon(self._hints.hint())

    def _claim_soon(self, at: float) -> None:
        for kind in self._claims.kinds:
            kind.hint(at)

    def _sleep(self, timeout: float) -> None:
        with suppress(queue.Empty):
            self._collect(self._done.get(timeout=max(0.0, timeout)))

    def _report(self, chunk: Chunk) -> None:
        """Wake the loop for this chunk. Called by hands, the event loop and the timeout monitor."""
        self._done.put(chunk)
        if self._listening:
            self.broker.wake()

    def _stuck(self, reason: str) -> None:
        """Called by the timeout monitor: a job does not end, and keeps a thread of this process."""
        self.clean = False
        if self._on_stuck is None:
            log.error("%s; it is settled as timed out, and its thread is abandoned", reason)
            return
        log.error("%s; it is settled as timed out, and this process is replaced", reason)
        self.retiring = True
        self._on_stuck(reason)
        self.stop()

    def _publish(self) -> None:
        self._slots.beat()
        self._slots.publish_put_backs(self._store.put_backs.by_queue)
        self._slots.publish(
            Vitals(
                claimed_at=self.health.claimed_at or 0.0,
                answered_at=self.health.answered_at,
                reached_at=self.health.reached_at,
                memory=memory_of(),
                settled=self.settled,
                stale=self.stale,
                running=self._claims.running(),
                rules_version=self._start_check.heard,
                flags=Flag.READY | Flag.RETIRING * self.retiring | Flag.DRAINED * self.drained,
            )
        )

    def _close(self) -> None:
        self._start_check.closed = "shutdown"
        for chunk in self._claims.live.values():
            self._pool.settled(chunk)  # no hand may wait any longer
        self._publish()
        self._failures.log_suppressed()
        self._upkeep.close(LAST_SECONDS)
        self.clean = self._pool.close(_CLOSE_SECONDS if self.clean else 0.1) and self.clean
        if self.heartbeat and not self._claims.live:
            with suppress(Exception):  # else its lease ends by itself
                self.broker.recover(dead=self.id, started=())
        if self._own_slots:
            self._slots.close()
