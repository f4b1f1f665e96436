"""The worker's loop: claim, hand out, settle. One thread does all of it; hands do the rest.

    claim -> chunks -> hands -> done -> settle, riding with the next claim

The loop waits on one thing at a time: for the store's hint while something could be claimed, for
`done` otherwise; whoever has news for it puts them there and wakes the store's wait if need be.
Working, then draining (no claims, what runs may end), then ending (what runs is interrupted).
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
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.app.locate import loading, target_of
from penstock.app.version import release
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS, WorkerRow
from penstock.errors import Refused
from penstock.job import Job, Outcome, State, put_back
from penstock.run.batch import most_together
from penstock.task.batch import as_batch_task
from penstock.worker.batch_gathering import BatchSize
from penstock.worker.chunk import Chunk
from penstock.worker.claim_plan import ClaimPlan, Want
from penstock.worker.drain_check import anything_left
from penstock.worker.failures import Failures
from penstock.worker.hand_context import HandContext
from penstock.worker.hand_pool import HandPool
from penstock.worker.health import Health
from penstock.worker.memory_use import memory_of
from penstock.worker.outbox import Outbox
from penstock.worker.running_slots import Flag, RunningSlots, Vitals
from penstock.worker.start_check import StartCheck
from penstock.worker.store_link import StoreLink
from penstock.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from penstock.app.app import App

_CANCEL_SECONDS = 1.0  # how often the store is asked what was cancelled
_SWEEP_SECONDS = 0.25
_ENDING_SECONDS = 2.0  # for interrupted jobs to end
_LAST_SECONDS = 5.0  # for the last outcomes to reach the store
_CLOSE_SECONDS = 5.0  # for threads that have nothing left to do
_COUNT_SECONDS = 0.1  # how often a draining worker counts what is left
_FUTILE = 4  # hints that may lead to nothing before they are heard less

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


Detached = Literal["leave", "beside", "here"]


class Phase(IntEnum):
    WORKING = 0
    DRAINING = 1  # takes nothing more, lets what runs end
    ENDING = 2  # has interrupted what runs
    LEAVING = 3  # has put back what does not end, and sends the last outcomes
    OVER = 4


class Worker:
    """Runs an app's jobs in this process, from `work()` until it is stopped or drained.

    `queues` None is every queue. `drain`: end when nothing is left to run now or later. `grace`:
    how long running jobs may take to end after `stop`; the rest is put back, uncounted. `heartbeat`
    off: somebody else renews this worker's row. `slots` are shared with a supervisor; it replaces
    the process when `on_stuck` hears that a job does not end. Without it a new thread takes over.
    `detached`: detached jobs are left to others, or are run by somebody beside it, so that `drain`
    waits for them, or here, as if they were not detached.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Collection[str] | None = None,
        threads: int = 10,
        async_slots: int = 100,
        tags: Collection[str] = (),
        lease: float = LEASE_SECONDS,
        grace: float = 25.0,
        drain: bool = False,
        id: str | None = None,
        heartbeat: bool = True,
        slots: RunningSlots | None = None,
        target: str | None = None,
        retention: float | None = RETENTION_SECONDS,
        on_stuck: Callable[[str], None] | None = None,
        detached: Detached = "leave",
    ) -> None:
        if threads < 1 or async_slots < 1:
            raise Refused(f"a worker needs hands: threads={threads}, async_slots={async_slots}")
        self.app = app
        self.broker = app.broker
        self._host = socket.gethostname()  # asked once: to ask gives up the interpreter
        self.id = id or f"{self._host}-{os.getpid()}-{secrets.token_hex(3)}"
        self.queues = None if queues is None else tuple(sorted(queues))
        self.lease = lease
        self.grace = grace
        self.heartbeat = heartbeat
        self.retiring = False
        self.drained = False  # it ended because nothing was left
        self.clean = True  # no job was left running when `work` returned
        self.health = Health(self.broker.clock)
        self._drain = drain
        self._on_stuck = on_stuck
        self._detached = detached
        self._tags = frozenset(tags)
        self._started_at = self.broker.clock.now()
        self._phase = Phase.WORKING
        self._stops = 0
        self._until = 0.0  # when this phase ends
        self._own_slots = slots is None
        self._slots = slots or RunningSlots(threads + async_slots)
        self._done: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._listening = False
        self._gate = StartCheck(self.broker)
        self._line = StoreLink(self.broker, self.health)
        self._target = target or target_of(app)
        processes, apart = self._target is not None, self.broker.traits.apart
        self._claims = ClaimPlan(threads, async_slots, processes=processes, apart=apart)
        clock, declared = self.broker.clock, app.schedules.declared
        self._upkeep = Upkeep(
            self.broker, clock, self.id, retention, lease, declared=declared, sending=app.sending
        )
        bench = HandContext(app, self._slots, self._gate, self._report, self._target)
        self._crew = HandPool(bench, threads, async_slots, self._stuck, self._publish)
        self._failures = Failures(app)
        self._outbox = Outbox(self._failures.tell)
        self._tasks: dict[str, int] = {}
        self._futile = 0  # hints in a row that led to nothing
        self._deaf_until = self._count_at = 0.0
        self._renewed_at = self._upkeep_at = self._sweep_at = 0.0

    @property
    def stale(self) -> int:
        """Outcomes that the store refused, because another attempt holds the job by now."""
        return self._line.stale

    @property
    def settled(self) -> int:
        """Outcomes that the store took."""
        return self._line.settled

    @property
    def row(self) -> WorkerRow:
        """This worker as the store knows it."""
        return WorkerRow(
            id=self.id,
            app=self.app.name,
            tasks=self._tasks,
            tags=self._tags,
            queues=self.queues,
            host=self._host,
            pid=os.getpid(),
            lease=self.lease,
            started_at=self._started_at,
            penstock=release(),
            claimed_at=self.health.claimed_at,
            running=self._claims.running(),
            stale=self._line.stale,
        )

    def stop(self, *, now: bool = False) -> None:
        """Take nothing more and end; a second time, or `now`: hand back what runs at once.

        Safe in a signal handler.
        """
        self._stops = max(2 if now else 1, self._stops + 1)
        self._done.put(None)
        self.broker.wake()

    def work(self) -> None:
        """Run jobs until stopped or drained. What was claimed has been settled or put back then."""
        if loading() is not None:
            raise RuntimeError(
                f"work() was called while {loading()} was being imported; "
                'put it under `if __name__ == "__main__":`'
            )
        self._know_tasks()
        self.app.schedules.declared()  # what is wrong with them is told now
        self._publish()  # before the first job, which may end this process
        self._crew.start()
        try:
            while self._phase is not Phase.OVER:
                try:
                    self._turn()
                except KeyboardInterrupt as error:
                    self._line.lost(error)  # it may have cut off an answer
                    self.stop()
        finally:
            self._close()

    def _know_tasks(self) -> None:
        tasks = self.app.known_tasks(detached=None if self._detached == "here" else False)
        if tasks == self._tasks:
            return
        modes: dict[str, str] = {}
        batches: dict[str, BatchSize] = {}
        for name in tasks:
            task = self.app.task_named(name)
            modes[name] = task.mode if task is not None else "thread"
            if (batch := as_batch_task(task)) is not None:
                most = most_together(self.app, batch)
                batches[name] = BatchSize(most, batch.linger, batch.by_key)
            if modes[name] == "process" and self._target is None:
                raise Refused(
                    f"task {name} runs in a process of its own, which must find the app: "
                    "keep the App in a module or a file, as `app = App()`"
                )
        self._tasks = tasks
        self._claims.know(modes, batches)

    def _turn(self) -> None:
        while True:
            try:
                self._collect(self._done.get_nowait())
            except queue.Empty:
                break
        now = monotonic()
        if now >= self._failures.due_at:
            self._failures.sum_up()
        self._proceed(now)
        if self._phase is Phase.OVER:
            return
        for chunk in self._claims.due(now):
            self._crew.give(chunk)
        if now < self._line.retry_at:
            self._rest(self._line.retry_at - now)
            return
        if self._chores(now) and not self._exchange(now):
            self._wait(monotonic())

    def _proceed(self, now: float) -> None:
        """Go on to the next phase when its time has come."""
        if self._stops and self._phase is Phase.WORKING:
            self._phase, self._until = Phase.DRAINING, now + self.grace
            self._gate.closed = "shutdown"
            self.health.draining = True
            log.info("draining: %d jobs are held", self._claims.running())
            self._claims.gathering.forget()
            for chunk in list(self._claims.live.values()):
                self._put_back(chunk, "shutdown")
        if self._phase is Phase.DRAINING and (self._stops > 1 or now >= self._until):
            self._phase, self._until = Phase.ENDING, now + _ENDING_SECONDS
            self._crew.interrupt("shutdown")
        if self._phase is Phase.ENDING and now >= self._until:
            self._phase, self._until = Phase.LEAVING, now + _LAST_SECONDS
            self.clean = not self._crew.abandon() and self.clean
        if self._phase and not (self._claims.live or self._outbox.pairs):
            self._phase = Phase.OVER
        if self._phase is Phase.LEAVING and now >= self._until:
            log.error("the store did not take the last outcomes; others will run these jobs again")
            self._phase = Phase.OVER

    def _chores(self, now: float) -> bool:
        """Renew, recover, sweep; False if the store does not answer."""
        live = self._claims.live
        compare = self._line.troubled or now >= self._line.agree_at
        holding = self._claims.holding() if compare else None
        if now >= self._renew_at() or holding is not None:
            renewed = self._line.renew(self.row, holding)
            if renewed is None:
                return False
            self._renewed_at = now
            if not self._claims.wants(now):
                self.health.answered()  # with full hands no claim could say so
            self._gate.cancelled = renewed.cancelled
            if renewed.cancelled:
                self._withdraw(renewed.cancelled)
        due = now >= self._upkeep_at and self._phase is Phase.WORKING
        if due and not self._keep_up(now):
            return False
        if now >= self._sweep_at and live:
            self._sweep_at = now + _SWEEP_SECONDS
            for chunk in list(live.values()):
                if chunk.jobs and now > chunk.start_until:
                    self._claims.pace(chunk.task).stalled()
                    self._put_back(chunk, "not started in time")
        return True

    def _keep_up(self, now: float) -> bool:
        self._upkeep_at = now + self.lease / 3
        self._know_tasks()
        try:
            self._upkeep.turn()
        except Exception as error:
            self._line.lost(error)
            return False
        if not self._tasks:
            self.health.answered()  # it claims nothing that could say so
        self._upkeep_at = min(self._upkeep_at, now + self._upkeep.seconds_left())
        return True

    def _withdraw(self, ids: Collection[str]) -> None:
        """End jobs that were cancelled: those that run, and those that wait for company."""
        self._crew.interrupt("cancelled", ids)
        for chunk, jobs in self._claims.gathering.withdraw(ids):
            chunk.done.extend((job, Outcome(State.CANCELLED, "cancelled")) for job in jobs)
            self._collect(chunk)

    def _renew_at(self) -> float:
        """When to renew: often while jobs run, to hear of cancellations; else for the lease."""
        if self._claims.live:
            return self._renewed_at + min(_CANCEL_SECONDS, self.lease / 3)
        return self._renewed_at + self.lease / 3 if self.heartbeat else math.inf

    def _exchange(self, now: float) -> bool:
        """Settle what has ended and claim what is wanted; False if there was nothing to do."""
        outbox = self._outbox
        if outbox.fell_due(self.broker.clock.now()):
            self._look_again(now)
        wants = self._claims.wants(now) if self._phase is Phase.WORKING else []
        due = [want for want in wants if now >= want.kind.due_at]
        if not due and outbox.pairs:
            due = wants[-1:]  # it has to be sent anyway: ask for more on the way
        for want in due:
            rules = self._gate.version()  # before the claim: a change in between is seen
            jobs = self._send(want)
            if jobs is None:
                return True
            self._take(jobs, want, rules)
        if outbox.overdue(now):
            self._send(None)
            return True
        return not all(want.kind.short for want in due)

    def _send(self, want: Want | None) -> list[Job[Any]] | None:
        jobs = self._line.exchange(self._outbox.pairs, self.row, self.queues, want)
        if jobs is not None:
            self._sent()
        return jobs

    def _sent(self) -> None:
        for chunk, count in self._outbox.sent():
            self._claims.answered(chunk, count)
            self._crew.settled(chunk)

    def _take(self, jobs: Sequence[Job[Any]], want: Want, rules: int) -> None:
        now = monotonic()
        if jobs:
            self._futile = 0
            for chunk in self._claims.take(jobs, want, rules, now):
                self._crew.give(chunk)
        elif not self._claims.live:
            want.kind.back_off(self.broker.traits.poll_seconds())
        want.kind.answered(now, len(jobs), want.limit)

    def _collect(self, chunk: Chunk | None) -> None:
        """Take over what a chunk has to report."""
        if chunk is None:
            return
        now = monotonic()
        count = self._outbox.take(chunk, now)
        if chunk.finished and not chunk.counted:
            chunk.counted = True
            self._claims.put_down(chunk)
        if count:
            self._claims.ended(chunk, count, now)
            if not self._outbox.pairs:  # they settled themselves
                self._sent()
        if chunk.jobs and (chunk.slow or chunk.finished) and not chunk.asynchronous:
            for part in self._claims.split(chunk):
                self._crew.give(part)

    def _put_back(self, chunk: Chunk, reason: str) -> None:
        chunk.done.extend((job, put_back(reason)) for job in chunk.take_back())
        self._collect(chunk)

    def _wait(self, now: float) -> None:
        """Sleep until there is something to do."""
        claims, outbox, working = self._claims, self._outbox, self._phase is Phase.WORKING
        wants = claims.wants(now) if working else []
        until = [now + self.lease / 3, self._renew_at(), *(want.kind.due_at for want in wants)]
        until += [claims.gathering.next_due, self._failures.due_at]
        if outbox.pairs:
            until.append(outbox.flush_at)
        if claims.live:
            until.append(self._sweep_at)
        until.append(self._upkeep_at if working else self._until)
        if (patience := claims.patient_until(now)) is not None:
            until.append(patience)
        if not wants or now < self._deaf_until:
            if self._drain and not self._tasks and self._is_drained(now):
                return
            self._rest(min(until) - now)
            return
        if self._drain and not claims.live:
            if now >= self._count_at and self._is_drained(now):
                return
            until.append(self._count_at)
        if outbox.next_due is not None:
            until.append(now + max(0.0, outbox.next_due - self.broker.clock.now()))
        self._listen(min(until) - now)

    def _is_drained(self, now: float) -> bool:
        self._count_at = now + _COUNT_SECONDS
        try:
            tasks = self.app.known_tasks() if self._detached == "beside" else self._tasks
            self.drained = not anything_left(
                self.broker, msgspec.structs.replace(self.row, tasks=tasks)
            )
        except Exception as error:
            self._line.lost(error)
        if self.drained:
            self._phase = Phase.OVER
        return self.drained

    def _listen(self, timeout: float) -> None:
        self._listening = True
        try:
            if not self._done.empty() or self._stops > self._phase:
                return
            hint = self.broker.wait(self.queues, max(0.0, timeout))
        except Exception as error:
            self._line.lost(error)
            return
        finally:
            self._listening = False
        if hint and self._done.empty():
            now = monotonic()
            self._futile += 1
            if self._futile > _FUTILE:
                # Others' news, again and again: look at them together, and not one by one.
                self._deaf_until = now + min(0.05, 0.001 * 2 ** min(self._futile - _FUTILE, 6))
                now = self._deaf_until
            self._look_again(now)

    def _look_again(self, at: float) -> None:
        for kind in self._claims.kinds:
            kind.hear(at)

    def _rest(self, timeout: float) -> None:
        with suppress(queue.Empty):
            self._collect(self._done.get(timeout=max(0.0, timeout)))

    def _report(self, chunk: Chunk) -> None:
        """Called by hands, on the event loop and by the monitor: this chunk has news."""
        self._done.put(chunk)
        if self._listening:
            self.broker.wake()

    def _stuck(self, reason: str) -> None:
        """Called by the monitor: a job does not end, and holds on to a thread of this process."""
        self.clean = False
        if self._on_stuck is None:
            log.error("%s; its thread is left to itself", reason)
            return
        log.error("%s; this process ends and another takes over", reason)
        self.retiring = True
        self._on_stuck(reason)
        self.stop()

    def _publish(self) -> None:
        flags = Flag.READY
        if self.retiring:
            flags |= Flag.RETIRING
        if self.drained:
            flags |= Flag.DRAINED
        self._slots.beat()
        self._slots.publish(
            Vitals(
                claimed_at=self.health.claimed_at or 0.0,
                answered_at=self.health.answered_at,
                memory=memory_of(),
                settled=self.settled,
                stale=self.stale,
                running=self._claims.running(),
                flags=flags,
            )
        )

    def _close(self) -> None:
        self._gate.closed = "shutdown"
        for chunk in self._claims.live.values():
            self._crew.settled(chunk)  # or will never be: nobody shall wait for it
        self._publish()
        self._failures.sum_up()
        self._upkeep.close(_LAST_SECONDS)
        self.clean = self._crew.close(_CLOSE_SECONDS if self.clean else 0.1) and self.clean
        if self.heartbeat and not self._claims.live:
            with suppress(Exception):  # its lease would end by itself
                self.broker.recover(dead=self.id, started=())
        if self._own_slots:
            self._slots.close()
