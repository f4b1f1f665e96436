"""Hands: the threads that run jobs.

A hand takes a chunk, runs its jobs one after the other and reports. To interrupt a job, another
thread first sets `_interrupt_target` and then checks that the hand still has this job; the hand
first clears `current` and then checks `_interrupt_target`. One of them sees the other, so nothing
is ever raised in the next job, and jobs that are not interrupted take no lock.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.settlement import settled
from penstock.errors import JobInterrupted, JobTimeout
from penstock.job import Job, Outcome, State, lapsed, put_back
from penstock.run.attempt import fire, run, run_async, timed_out
from penstock.run.batch import run_together
from penstock.task.batch import BatchTask, as_batch_task
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.idle_processes import IdleProcesses
from penstock.worker.interrupt import forget, interrupt
from penstock.worker.job_process import JobProcess, ProcessGone, ProcessUnstartable

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

_BETWEEN_INTERRUPTS = 0.5  # so that a second error is not raised while the first is handled
_PROCESS_RETRY_SECONDS = 5.0

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Hands:
    """`count` threads that take chunks from one queue."""

    def __init__(self, context: HandContext, count: int) -> None:
        self.context = context
        self.count = count
        self.chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self.hands: list[Hand] = []  # replaced as a whole, so that any thread may read it
        self.processes = IdleProcesses()
        self._changing = threading.Lock()
        self._spare: list[int] = []  # slots of hands that have ended

    def start(self) -> None:
        self.hands = [Hand(self, index) for index in range(self.count)]
        for hand in self.hands:
            hand.start()

    def replace(self, hand: Hand) -> None:
        """Start a new hand in place of one whose job does not end."""
        fresh = Hand(self, hand.index)
        with self._changing:
            self.hands = [fresh if each is hand else each for each in self.hands]
        fresh.start()

    def resize(self, count: int) -> None:
        """Have so many hands from now on; those that are too many end when they are free."""
        with self._changing:
            for _ in range(self.count - count):
                self.chunks.put(None)
            more = [Hand(self, slot) for slot in self._slots_for(count - self.count)]
            self.hands = [*self.hands, *more]
            self.count = count
        for hand in more:
            hand.start()

    def _slots_for(self, number: int) -> list[int]:
        slots: list[int] = []
        while len(slots) < number:
            slot = self._spare.pop() if self._spare else self.context.slots.take_extra()
            if slot is None:
                break
            slots.append(slot)
        return slots

    def ended(self, hand: Hand) -> None:
        """A hand was one too many, and has ended: its slot is free."""
        with self._changing:
            self.hands = [each for each in self.hands if each is not hand]
            self._spare.append(hand.index)

    def close(self, timeout: float) -> bool:
        """End every hand; False if one is still busy after this many seconds."""
        hands = self.hands
        for _ in hands:
            self.chunks.put(None)
        until = monotonic() + timeout
        for hand in hands:
            hand.join(max(0.0, until - monotonic()))
        self.processes.close()
        return not any(hand.is_alive() for hand in hands)


class Hand(threading.Thread):
    """One thread, which runs one job at a time, or one batch."""

    def __init__(self, hands: Hands, index: int) -> None:
        super().__init__(name=f"penstock-hand-{index}", daemon=True)
        self.index = index
        self.chunk: Chunk | None = None
        self.current: Job[Any] | None = None  # the job that may be interrupted
        self.batch: Sequence[
            Job[Any]
        ] = ()  # `current` and the other jobs of its call, of a batch task
        self.extra_slots: Sequence[int] = ()  # of the batch's other jobs
        self.began = 0.0
        self.deadline = 0.0
        self.interrupts = 0  # how often the current job was interrupted
        self.interrupted_at = 0.0
        self.given_up = False  # its job is settled without it, and another hand took its place
        self._interrupt_reason: str | None = None  # why it was interrupted
        self._interrupt_lock = (
            threading.Lock()
        )  # among interrupting threads; the hand never takes it
        self._interrupt_target: Job[Any] | None = None
        self._job: Job[Any] | None = None
        self._outcome: Outcome | None = None
        self._answered = False
        self._process: JobProcess | None = None
        self._hands = hands
        self._hand_context = hands.context
        self._app = hands.context.app

    def run(self) -> None:
        while (chunk := self._hands.chunks.get()) is not None:
            self.chunk = chunk
            self._run_chunk(chunk)
            if self.given_up:
                return
            self.chunk = None
            self._hand_context.slots.free(self.index)
            if self._process is not None:
                self._hands.processes.put(self._process)
                self._process = None
        self._hands.ended(self)

    def interrupt(self, job: Job[Any], reason: str) -> bool:
        """End this job, and no other, if this hand still has it."""
        with self._interrupt_lock:
            self._interrupt_target = job
            try:
                now = monotonic()
                too_soon = self.interrupts and now - self.interrupted_at < _BETWEEN_INTERRUPTS
                if self.current is not job or too_soon:
                    return False
                self._interrupt_reason = reason
                self.interrupts += 1
                self.interrupted_at = now
                if not self.in_own_process or self._process is None:
                    interrupt(self.ident or 0, reason)
                elif self.interrupts == 1:
                    self._process.terminate()
                else:
                    self._process.kill()
                return True
            finally:
                self._interrupt_target = None

    def give_up(self, job: Job[Any]) -> bool:
        """Ignore what this hand still does with the job; False if it has ended by now."""
        with self._interrupt_lock:
            self._interrupt_target = job
            try:
                if self.current is job:
                    self._interrupt_reason = self._interrupt_reason or "timeout"
                    self.given_up = True
                return self.given_up
            finally:
                self._interrupt_target = None

    def settle_given_up(
        self, jobs: Sequence[Job[Any]], task: Task[..., Any], chunk: Chunk, reason: str
    ) -> None:
        """Give a given-up job, and those of its batch, the outcome of an interrupt."""
        for job in jobs:
            outcome = interrupted_outcome(self._app, task, job, reason, self.began)
            chunk.done.append((job, outcome))

    @property
    def in_own_process(self) -> bool:
        """Whether the job runs in a process of its own."""
        return self.chunk is not None and self.chunk.own_process

    @property
    def running(self) -> Sequence[Job[Any]]:
        """The jobs that end with the current one."""
        current = self.current
        return self.batch or (() if current is None else (current,))

    def _run_chunk(self, chunk: Chunk) -> None:
        task = self._app.task_named(chunk.task)
        began = monotonic()
        if chunk.as_batch and (batch := as_batch_task(task)) is not None:
            self._run_batch(chunk, batch)
        elif task is None:
            chunk.done.extend((job, put_back("unknown task")) for job in chunk.take_back())
        while task is not None and not chunk.as_batch:
            try:
                self._run_jobs(chunk, task)
                break
            except (JobTimeout, JobInterrupted):
                # It was raised outside the task's own code: in `run`, or in this class.
                self._wait_out_interrupts()
                if self.given_up or self._job is None:
                    break
                if not self._answered:
                    self._outcome = self._interrupted_outcome(task, self._job)
                self._add_outcome(chunk, self._job, self._outcome)
            except Exception:
                # A bug in Penstock, not in the task. A lapse, so that it cannot repeat for ever.
                log.exception(
                    "job %s of %s could not be run: an error of the worker; it counts a lapse",
                    None if self._job is None else self._job.id,
                    chunk.task,
                )
                self.current = None
                if self._job is not None:
                    self._add_outcome(chunk, self._job, lapsed())
        if not self.given_up:
            chunk.seconds = monotonic() - began
            chunk.finished = True
            self._hand_context.report(chunk)

    def _run_jobs(self, chunk: Chunk, task: Task[..., Any]) -> None:
        app, index, take, done = self._app, self.index, chunk.jobs.popleft, chunk.done.append
        refuse, hold = self._hand_context.start_check.refuse, self._hand_context.slots.hold
        timeout_of = task.timeout_of
        own_process = chunk.own_process
        last_look = partial(self._hand_context.start_check.last_look, chunk.rules)
        while True:
            try:
                job = self._job = take()
            except IndexError:
                return
            outcome = None
            if own_process:
                outcome = self._prepare_process(chunk, task, suspect=job.lapses > 0)
            began = monotonic()
            outcome = outcome or refuse(chunk, job, began)
            if outcome is not None:
                if outcome.state is State.CANCELLED:
                    fire(app, "cancelled", job, outcome)
                done((job, outcome))
                self._job = None
                continue
            timeout = timeout_of(job)
            deadline = monotonic() + timeout if timeout else 0.0
            hold(index, job, deadline)
            self._answered = False
            self.began, self.deadline, self._interrupt_reason, self.interrupts = (
                began,
                deadline,
                None,
                0,
            )
            self.current = job
            if own_process:
                self._outcome = self._run_in_process(chunk, task, job)
            else:
                self._outcome = run(app, task, job, last_look)
            self._answered = True
            self.current = None
            if self._interrupt_reason is not None or self._interrupt_target is not None:
                self._wait_out_interrupts()
                if self.given_up:
                    return
            chunk.ran += 1
            if job.at_most_once:
                self._add_outcome(chunk, job, self._outcome)
            else:  # as _add_outcome, inlined: this is the hot path
                self._job = None
                done((job, self._outcome))

    def _run_batch(self, chunk: Chunk, task: BatchTask[Any, Any]) -> None:
        jobs, deadline = start_batch(self._hand_context, chunk, task)
        if not jobs:
            return
        slots = self._hand_context.slots
        slots.hold(self.index, jobs[0], deadline)
        self.extra_slots = slots.hold_extra(jobs[1:], deadline)
        self.batch = jobs = put_back_after(chunk, jobs, 1 + len(self.extra_slots))
        self.began, self.deadline, self._interrupt_reason, self.interrupts = (
            monotonic(),
            deadline,
            None,
            0,
        )
        outcomes: list[Outcome | None] = []
        last_look = partial(self._hand_context.start_check.last_look, chunk.rules)
        try:
            self.current = jobs[0]
            outcomes = run_together(self._app, task, jobs, last_look)
            self.current = None
            if self._interrupt_reason is not None or self._interrupt_target is not None:
                self._wait_out_interrupts()
        except (JobTimeout, JobInterrupted):  # raised outside the task's own code
            self._wait_out_interrupts()
        except Exception:
            self._wait_out_interrupts()
            log.exception(
                "a batch of %d jobs of %s could not be run: an error of the worker; each counts a "
                "lapse",
                len(jobs),
                chunk.task,
            )
            outcomes = [lapsed()] * len(jobs)
        if self.given_up:
            return
        if not outcomes:
            outcomes = [self._interrupted_outcome(task, job) for job in jobs]
        slots.free_extra(self.extra_slots)
        self.batch, self.extra_slots = (), ()
        chunk.done.extend(zip(jobs, outcomes, strict=True))
        chunk.ran += len(jobs)

    def _add_outcome(self, chunk: Chunk, job: Job[Any], outcome: Outcome | None) -> None:
        self._job = None
        if not job.at_most_once:
            chunk.done.append((job, outcome))
            return
        chunk.settled = threading.Event()
        chunk.done.append((job, outcome and at_most_once_outcome(outcome)))
        self._hand_context.report(chunk)
        chunk.settled.wait()

    def _wait_out_interrupts(self) -> None:
        """Return once nothing more can be raised in this thread."""
        while True:
            try:
                self.current = None
                while self._interrupt_target is not None:
                    time.sleep(0.000_1)
                forget()
                return
            except (JobTimeout, JobInterrupted):
                continue

    def _prepare_process(
        self, chunk: Chunk, task: Task[..., Any], *, suspect: bool
    ) -> Outcome | None:
        """Start a process if there is none; None if the job can run, there or in this thread."""
        if self._process is not None and not self._process.alive:
            self._process.close(timeout=0)
            self._process = None
        self._process = self._process or self._hands.processes.take()
        if self._process is not None:
            return None
        if self._hand_context.target is not None:
            began = monotonic()
            try:
                self._process = self._hands.processes.start(
                    self._hand_context.target, suspect=suspect
                )
                # Not counted as waiting: put back, the job would meet a hand without a process.
                chunk.start_until += monotonic() - began
                return None
            except (ProcessUnstartable, OSError) as error:
                log.warning(
                    "no process could be started for a job of %s: %r; %s",
                    task.name,
                    error,
                    f"the job is put back for {_PROCESS_RETRY_SECONDS:g} s"
                    if task.mode == "process"
                    else "it runs in a thread of the worker",
                )
        if task.mode == "process":
            return put_back("no process", run_at=self._app.clock.now() + _PROCESS_RETRY_SECONDS)
        chunk.own_process = False
        return None

    def _run_in_process(self, chunk: Chunk, task: Task[..., Any], job: Job[Any]) -> Outcome | None:
        process, self.began = self._process, monotonic()
        try:
            last_look = partial(self._hand_context.start_check.last_look, chunk.rules)
            if process is not None:
                return process.run(job, last_look)
            if task.mode == "async":
                import asyncio

                return asyncio.run(run_async(self._app, task, job, last_look))
            return run(self._app, task, job, last_look)
        except ProcessGone as error:
            self._process = None  # and closed
            if self._interrupt_reason is None:
                log.warning("job %s: its process died (%s)", job.id, error)
            return self._interrupted_outcome(task, job, error.evidence)

    def _interrupted_outcome(
        self, task: Task[..., Any], job: Job[Any], evidence: str | None = None
    ) -> Outcome:
        reason = self._interrupt_reason
        return interrupted_outcome(self._app, task, job, reason, self.began, evidence)

    def look_at_memory(self) -> None:
        """Remember how much memory its process uses, for the case that it dies."""
        process = self._process
        if self.in_own_process and process is not None:
            process.look_at_memory()


def start_batch(
    context: HandContext, chunk: Chunk, task: BatchTask[Any, Any]
) -> tuple[list[Job[Any]], float]:
    """The jobs of a chunk that may start in one call, and the earliest of their deadlines."""
    now = monotonic()
    jobs: list[Job[Any]] = []
    for job in chunk.take_all():
        refused = context.start_check.refuse(chunk, job, now)
        if refused is None:
            jobs.append(job)
        else:
            if refused.state is State.CANCELLED:
                fire(context.app, "cancelled", job, refused)
            chunk.done.append((job, refused))
    timeouts = [timeout for job in jobs if (timeout := task.timeout_of(job))]
    return jobs, now + min(timeouts) if timeouts else 0.0


def put_back_after(chunk: Chunk, jobs: Sequence[Job[Any]], count: int) -> Sequence[Job[Any]]:
    """The first `count` jobs; the others are put back, because no slot can record their start."""
    chunk.done.extend((job, put_back("too many at once")) for job in jobs[count:])
    return jobs[:count]


def all_in(jobs: Collection[Job[Any]], ids: Collection[str] | None) -> bool:
    """Whether all jobs of a call are among these (None: any): only then is a batch interrupted."""
    return ids is None or all(job.id in ids for job in jobs)


def interrupted_outcome(  # noqa: PLR0917  all that an attempt is made of
    app: App,
    task: Task[..., Any],
    job: Job[Any],
    reason: str | None,
    began: float,
    evidence: str | None = None,
) -> Outcome:
    """The outcome of an attempt that was ended from outside; without a reason, it died."""
    now = app.clock.now()
    started_at = now - (monotonic() - began)
    if reason == "timeout":
        outcome = timed_out(task, job, now, started_at)
        fire(app, "timed_out", job, outcome)
        return outcome
    if reason == "cancelled":
        outcome = Outcome(State.CANCELLED, "cancelled", started_at=started_at, ended_at=now)
        fire(app, "cancelled", job, outcome)
        return outcome
    outcome = lapsed(evidence) if reason is None else put_back("shutdown")
    outcome = msgspec.structs.replace(outcome, started_at=started_at, ended_at=now)
    if job.at_most_once:
        outcome = at_most_once_outcome(outcome)
    if outcome.lapses:
        # The store checks the crash budget; hooks hear what it will decide.
        after = settled(job, outcome, now, cancelled=False)
        told = msgspec.structs.replace(outcome, state=after.state, reason=after.reason)
        fire(app, "crashed", job, told)
    return outcome


def at_most_once_outcome(outcome: Outcome) -> Outcome:
    """As given, but a lapse instead of a put-back: the job has begun, and must not run twice."""
    if outcome.state is not State.READY or outcome.reason not in {"shutdown", "store"}:
        return outcome
    return msgspec.structs.replace(outcome, reason="crashed", lapses=1)
