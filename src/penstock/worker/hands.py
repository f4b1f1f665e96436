"""Hands: the threads that run jobs.

A hand takes a chunk, runs its jobs one after the other and reports. Whoever wants to end a job aims
at it: `interrupt` marks the target first and then looks whether the hand still has that job, the
hand puts the job down first and then looks for a mark. One of both sees the other, so that nothing
is ever raised in the job that comes next, and no lock is taken for jobs that nobody interrupts.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import JobInterrupted, JobTimeout
from penstock.job import Job, Outcome, State, lapsed, put_back
from penstock.run.attempt import fire, run, run_async, timed_out
from penstock.run.batch import run_together
from penstock.task.batch import BatchTask, as_batch_task
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.interrupt import forget, interrupt
from penstock.worker.job_process import JobProcess, ProcessGone, ProcessUnstartable

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

_BETWEEN_STRIKES = 0.5  # so that a second error never arrives while the first is dealt with
_START_AGAIN_SECONDS = 5.0

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Hands:
    """`count` threads that take chunks from one queue."""

    def __init__(
        self,
        bench: HandContext,
        count: int,
    ) -> None:
        self.bench = bench
        self.count = count
        self.chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self.hands: list[Hand] = []

    def start(self) -> None:
        self.hands = [Hand(self, index) for index in range(self.count)]
        for hand in self.hands:
            hand.start()

    def replace(self, hand: Hand) -> None:
        """A new hand in place of one that will not come back."""
        self.hands[hand.index] = fresh = Hand(self, hand.index)
        fresh.start()

    def close(self, patience: float) -> bool:
        """End every hand; False if one is still at it after this many seconds."""
        for _ in self.hands:
            self.chunks.put(None)
        until = monotonic() + patience
        for hand in self.hands:
            hand.join(max(0.0, until - monotonic()))
        return not any(hand.is_alive() for hand in self.hands)


class Hand(threading.Thread):
    """One thread, and at most one job at a time in it."""

    def __init__(self, hands: Hands, index: int) -> None:
        super().__init__(name=f"penstock-hand-{index}", daemon=True)
        self.index = index
        self.chunk: Chunk | None = None
        self.current: Job[Any] | None = None  # the job that may be interrupted
        self.batch: Sequence[Job[Any]] = ()  # that and those in the same call, of a batch task
        self.places: Sequence[int] = ()  # which they have among the slots
        self.began = 0.0
        self.deadline = 0.0
        self.strikes = 0  # how often the current job was interrupted
        self.struck_at = 0.0
        self.lost = False  # given up: its job is settled, and another hand has its place
        self._verdict: str | None = None  # why it was interrupted
        self._aim = threading.Lock()  # between those who interrupt; the hand never takes it
        self._target: Job[Any] | None = None
        self._job: Job[Any] | None = None
        self._outcome: Outcome | None = None
        self._answered = False
        self._process: JobProcess | None = None
        self._hands = hands
        self._bench = hands.bench
        self._app = hands.bench.app

    def run(self) -> None:
        while (chunk := self._hands.chunks.get()) is not None:
            self.chunk = chunk
            self._take(chunk)
            if self.lost:
                return
            self.chunk = None
            self._bench.slots.free(self.index)
        if self._process is not None:
            self._process.close()

    def interrupt(self, job: Job[Any], verdict: str) -> bool:
        """End this job, and no other, if this hand still has it."""
        with self._aim:
            self._target = job
            try:
                now = monotonic()
                too_soon = self.strikes and now - self.struck_at < _BETWEEN_STRIKES
                if self.current is not job or too_soon:
                    return False
                self._verdict = verdict
                self.strikes += 1
                self.struck_at = now
                if not self.elsewhere or self._process is None:
                    interrupt(self.ident or 0, verdict)
                elif self.strikes == 1:
                    self._process.terminate()
                else:
                    self._process.kill()
                return True
            finally:
                self._target = None

    def give_up(self, job: Job[Any]) -> bool:
        """From now on what this hand does with the job counts for nothing; False if it is done."""
        with self._aim:
            self._target = job
            try:
                if self.current is job:
                    self._verdict = self._verdict or "timeout"
                    self.lost = True
                return self.lost
            finally:
                self._target = None

    @property
    def elsewhere(self) -> bool:
        """Whether the job runs in a process of its own."""
        return self.chunk is not None and self.chunk.alone

    @property
    def running(self) -> Sequence[Job[Any]]:
        """The jobs that end with the current one."""
        current = self.current
        return self.batch or (() if current is None else (current,))

    def _take(self, chunk: Chunk) -> None:
        task = self._app.task_named(chunk.task)
        began = monotonic()
        if chunk.together and (batch := as_batch_task(task)) is not None:
            self._take_together(chunk, batch)
        elif task is None:
            chunk.done.extend((job, put_back("unknown task")) for job in chunk.take_back())
        while task is not None and not chunk.together:
            try:
                self._run_through(chunk, task)
                break
            except (JobTimeout, JobInterrupted):
                # It arrived outside the task's own code: in run's, or in ours.
                self._stand_still()
                if self.lost or self._job is None:
                    break
                if not self._answered:
                    self._outcome = self._cut_short(task, self._job)
                self._put_down(chunk, self._job, self._outcome)
            except Exception:
                # Ours, not the task's. Counted, so that it cannot go on for ever.
                log.exception("a hand failed with a job of %s", chunk.task)
                self.current = None
                if self._job is not None:
                    self._put_down(chunk, self._job, lapsed())
        if not self.lost:
            chunk.seconds = monotonic() - began
            chunk.finished = True
            self._bench.report(chunk)

    def _run_through(self, chunk: Chunk, task: Task[..., Any]) -> None:
        app, index, take, done = self._app, self.index, chunk.jobs.popleft, chunk.done.append
        refuse, hold = self._bench.gate.refuse, self._bench.slots.hold
        timeout_of = task.timeout_of
        special = chunk.alone
        last_look = partial(self._bench.gate.last_look, chunk.rules)
        while True:
            try:
                job = self._job = take()
            except IndexError:
                return
            outcome = self._prepare_process(chunk, task) if special else None
            began = monotonic()
            outcome = outcome or refuse(chunk, job, began)
            if outcome is not None:
                done((job, outcome))
                self._job = None
                continue
            timeout = timeout_of(job)
            deadline = monotonic() + timeout if timeout else 0.0
            hold(index, job, deadline)
            self._answered = False
            self.began, self.deadline, self._verdict, self.strikes = began, deadline, None, 0
            self.current = job
            if special:
                self._outcome = self._run_elsewhere(chunk, task, job)
            else:
                self._outcome = run(app, task, job, last_look)
            self._answered = True
            self.current = None
            if self._verdict is not None or self._target is not None:
                self._stand_still()
                if self.lost:
                    return
            chunk.ran += 1
            if job.at_most_once:
                self._put_down(chunk, job, self._outcome)
            else:  # as there, without the call: this is the hot path
                self._job = None
                done((job, self._outcome))

    def _take_together(self, chunk: Chunk, task: BatchTask[Any, Any]) -> None:
        jobs, deadline = begin_together(self._bench, chunk, task)
        if not jobs:
            return
        slots = self._bench.slots
        slots.hold(self.index, jobs[0], deadline)
        self.places = slots.hold_beside(jobs[1:], deadline)
        self.batch = jobs = leave_out(chunk, jobs, 1 + len(self.places))
        self.began, self.deadline, self._verdict, self.strikes = monotonic(), deadline, None, 0
        outcomes: list[Outcome | None] = []
        last_look = partial(self._bench.gate.last_look, chunk.rules)
        try:
            self.current = jobs[0]
            outcomes = run_together(self._app, task, jobs, last_look)
            self.current = None
            if self._verdict is not None or self._target is not None:
                self._stand_still()
        except (JobTimeout, JobInterrupted):  # it arrived outside the task's own code
            self._stand_still()
        except Exception:
            self._stand_still()
            log.exception("a hand failed with a batch of %s", chunk.task)
            outcomes = [lapsed()] * len(jobs)
        if self.lost:
            return
        if not outcomes:
            outcomes = [self._cut_short(task, job) for job in jobs]
        slots.free_beside(self.places)
        self.batch, self.places = (), ()
        chunk.done.extend(zip(jobs, outcomes, strict=True))
        chunk.ran += len(jobs)

    def _put_down(self, chunk: Chunk, job: Job[Any], outcome: Outcome | None) -> None:
        self._job = None
        if not job.at_most_once:
            chunk.done.append((job, outcome))
            return
        chunk.settled = threading.Event()
        chunk.done.append((job, outcome and once(outcome)))
        self._bench.report(chunk)
        chunk.settled.wait()

    def _stand_still(self) -> None:
        """Once this returns nothing more is raised in this thread."""
        while True:
            try:
                self.current = None
                while self._target is not None:
                    time.sleep(0.000_1)
                forget(self.ident or 0)
                return
            except (JobTimeout, JobInterrupted):
                continue

    def _prepare_process(self, chunk: Chunk, task: Task[..., Any]) -> Outcome | None:
        """Have a process ready; None if the job can go on, in it or else in this thread."""
        if self._process is not None:
            if self._process.alive:
                return None
            self._process.close(patience=0)
            self._process = None
        if self._bench.target is not None:
            began = monotonic()
            try:
                self._process = JobProcess(self._bench.target)
                # Put back for that it would come to another hand, which has no process either.
                chunk.start_until += monotonic() - began
                return None
            except (ProcessUnstartable, OSError) as error:
                log.warning("no process for a job of %s could be started: %r", task.name, error)
        if task.mode == "process":
            return put_back("no process", run_at=self._app.clock.now() + _START_AGAIN_SECONDS)
        chunk.alone = False
        return None

    def _run_elsewhere(self, chunk: Chunk, task: Task[..., Any], job: Job[Any]) -> Outcome | None:
        process, self.began = self._process, monotonic()
        try:
            if process is not None:
                return process.run(job, chunk.rules)
            last_look = partial(self._bench.gate.last_look, chunk.rules)
            if task.mode == "async":
                return asyncio.run(run_async(self._app, task, job, last_look))
            return run(self._app, task, job, last_look)
        except ProcessGone as error:
            log.warning("job %s: its process ended with code %s", job.id, error)
            return self._cut_short(task, job)

    def _cut_short(self, task: Task[..., Any], job: Job[Any]) -> Outcome:
        return cut_short(self._app, task, job, self._verdict, self.began)


def begin_together(
    bench: HandContext, chunk: Chunk, task: BatchTask[Any, Any]
) -> tuple[list[Job[Any]], float]:
    """The jobs of a chunk that may start in one call, and the deadline of that call, the first."""
    now = monotonic()
    jobs: list[Job[Any]] = []
    for job in chunk.take_all():
        refused = bench.gate.refuse(chunk, job, now)
        if refused is None:
            jobs.append(job)
        else:
            chunk.done.append((job, refused))
    timeouts = [timeout for job in jobs if (timeout := task.timeout_of(job))]
    return jobs, now + min(timeouts) if timeouts else 0.0


def leave_out(chunk: Chunk, jobs: Sequence[Job[Any]], count: int) -> Sequence[Job[Any]]:
    """The first `count` of them; a start that nobody could tell of is none, so others go back."""
    chunk.done.extend((job, put_back("too many at once")) for job in jobs[count:])
    return jobs[:count]


def all_among(jobs: Collection[Job[Any]], ids: Collection[str] | None) -> bool:
    """Whether a call is to be ended: that of a batch, when it is for nobody any more."""
    return ids is None or all(job.id in ids for job in jobs)


def cut_short(
    app: App, task: Task[..., Any], job: Job[Any], verdict: str | None, began: float
) -> Outcome:
    """Where an attempt leads that was ended from outside and could not say so itself."""
    now = app.clock.now()
    started_at = now - (monotonic() - began)
    if verdict == "timeout":
        outcome = timed_out(task, job, now, started_at)
        fire(app, "timed_out", job, outcome)
        return outcome
    if verdict == "cancelled":
        return Outcome(State.CANCELLED, "cancelled", started_at=started_at, ended_at=now)
    # Without a verdict nobody ended it but itself.
    back = lapsed() if verdict is None else put_back("shutdown")
    outcome = msgspec.structs.replace(back, started_at=started_at, ended_at=now)
    return once(outcome) if job.at_most_once else outcome


def once(outcome: Outcome) -> Outcome:
    """The outcome of an at-most-once job that has begun: putting it back would run it twice."""
    if outcome.state is not State.READY or outcome.reason not in {"shutdown", "store"}:
        return outcome
    return msgspec.structs.replace(outcome, reason="crashed", lapses=1)
