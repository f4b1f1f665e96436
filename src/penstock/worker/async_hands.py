"""Jobs of `async def` tasks: many at once, on one event loop in one thread.

The thread is started with the first chunk. Everything below `_accept` runs on the event loop; other
threads only give chunks, interrupt, and read `runs`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import JobInterrupted, JobTimeout
from penstock.job import Job, Outcome, State, lapsed, put_back
from penstock.run.attempt import fire, run_async
from penstock.run.batch import run_together_async
from penstock.task.batch import BatchTask, as_batch_task
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.hands import (
    at_most_once_outcome,
    interrupted_outcome,
    put_back_after,
    start_batch,
)

if TYPE_CHECKING:
    import asyncio

    from penstock.task.task import Task

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


@dataclass(slots=True, eq=False)
class AsyncRun:
    """One job, or one batch, that runs on the event loop."""

    chunk: Chunk
    job: Job[Any]
    task: Task[..., Any]
    slot: int
    batch: Sequence[Job[Any]] = ()  # `job` and the other jobs of its call, of a batch task
    began: float = field(default_factory=monotonic)
    deadline: float = 0.0
    interrupts: int = 0  # how often it was interrupted
    interrupted_at: float = 0.0
    given_up: bool = False
    running: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None


class AsyncHands:
    """One event loop, and at most `count` jobs on it."""

    def __init__(
        self,
        context: HandContext,
        count: int,
        first_slot: int,
    ) -> None:
        self.count = count
        self.runs: dict[int, AsyncRun] = {}  # by slot
        self._context = context
        self._app = context.app
        self._slots = context.slots
        self._start_check = context.start_check
        self._report = context.report
        self._free = list(range(first_slot, first_slot + count))
        self._spare: list[int] = []  # slots beyond `count`
        self._in_use = count  # slots that are free or taken
        self._waiting: deque[Chunk] = deque()
        self._to_report: dict[int, Chunk] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def give(self, chunk: Chunk) -> None:
        if self._loop is None:
            import asyncio  # 30 ms of each start, for the few workers that need it

            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run_loop, args=(self._loop,), name="penstock-async", daemon=True
            )
            self._thread.start()
        self._loop.call_soon_threadsafe(self._accept, chunk)

    def resize(self, count: int) -> None:
        """Run at most so many jobs from now on; those that run go on."""
        if self._loop is None:
            self._set_count(count)
        else:
            self._loop.call_soon_threadsafe(self._set_count, count)

    def _set_count(self, count: int) -> None:
        self.count = count
        while self._in_use < count:
            slot = self._spare.pop() if self._spare else self._slots.take_extra()
            if slot is None:
                break
            self._free.append(slot)
            self._in_use += 1
        while self._in_use > count and self._free:
            self._spare.append(self._free.pop())
            self._in_use -= 1
        if self._loop is not None:
            self._start_more()

    def interrupt(self, run: AsyncRun, reason: str) -> None:
        """Cancel this job; may be called by any thread."""
        run.interrupts += 1
        run.interrupted_at = monotonic()
        if self._loop is not None and run.running is not None:
            self._loop.call_soon_threadsafe(run.running.cancel, reason)

    def give_up(self, run: AsyncRun, reason: str) -> None:
        """Settle a job that does not end; what it still does is ignored."""
        if self.runs.pop(run.slot, None) is run:
            run.given_up = True
            for job in run.batch or (run.job,):
                outcome = interrupted_outcome(self._app, run.task, job, reason, run.began)
                self._add_outcome(run, job, outcome)
            run.chunk.finished = run.chunk.as_batch
            self._report(run.chunk)

    def settled(self, slot: int) -> None:
        """Free the slot of an at-most-once job, whose outcome is stored now."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._release, slot)

    def close(self, timeout: float) -> bool:
        """End the loop; False if it does not end within this many seconds."""
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel("shutdown")
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _accept(self, chunk: Chunk) -> None:
        self._waiting.append(chunk)
        self._start_more()

    def _start_more(self) -> None:
        while self._waiting and self._free:
            chunk = self._waiting[0]
            if chunk.as_batch:
                self._start_batch(self._waiting.popleft())
                continue
            try:
                job = chunk.jobs.popleft()
            except IndexError:
                self._waiting.popleft()
                continue
            self._start(chunk, job)

    def _start(self, chunk: Chunk, job: Job[Any]) -> None:
        task = self._app.task_named(job.task)
        if task is None:
            chunk.done.append((job, put_back("unknown task")))
            self._report_soon(chunk)
            return
        run = AsyncRun(chunk, job, task, self._free.pop())
        self.runs[run.slot] = run
        run.running = _running_loop().create_task(self._run_job(run), name=f"{job.task} {job.id}")

    def _start_batch(self, chunk: Chunk) -> None:
        task = as_batch_task(self._app.task_named(chunk.task))
        if task is None:
            chunk.done.extend((job, put_back("unknown task")) for job in chunk.take_back())
            jobs, deadline = list[Job[Any]](), 0.0
        else:
            jobs, deadline = start_batch(self._context, chunk, task)
        if task is None or not jobs:
            chunk.finished = True
            self._report_soon(chunk)
            return
        run = AsyncRun(chunk, jobs[0], task, self._free.pop())
        extra_slots = self._slots.hold_extra(jobs[1:], deadline)
        run.batch = put_back_after(chunk, jobs, 1 + len(extra_slots))
        self._slots.hold(run.slot, run.job, deadline)
        self.runs[run.slot] = run
        loop = _running_loop()
        if deadline:
            run.deadline = deadline
            run.timer = loop.call_at(loop.time() + deadline - run.began, self._on_timeout, run)
        run.running = loop.create_task(self._run_batch(run, task, extra_slots), name=chunk.task)

    async def _run_batch(
        self, run: AsyncRun, task: BatchTask[Any, Any], extra_slots: Sequence[int]
    ) -> None:
        from asyncio import CancelledError

        chunk, jobs = run.chunk, run.batch
        outcomes: Sequence[Outcome | None] = ()
        try:
            last_look = partial(self._start_check.last_look, chunk.rules)
            outcomes = await run_together_async(self._app, task, jobs, last_look)
        except (CancelledError, JobTimeout, JobInterrupted) as error:
            reason = error.args[0] if error.args else "shutdown"
            outcomes = [
                interrupted_outcome(self._app, task, job, reason, run.began) for job in jobs
            ]
        except Exception:
            log.exception(
                "a batch of %d jobs of %s could not be run: an error of the worker; each counts a "
                "lapse",
                len(jobs),
                chunk.task,
            )
            outcomes = [lapsed()] * len(jobs)
        if run.timer is not None:
            run.timer.cancel()
        if not run.given_up and self.runs.pop(run.slot, None) is run:
            chunk.ran += len(jobs)
            chunk.seconds += monotonic() - run.began
            chunk.done.extend(zip(jobs, outcomes, strict=True))
            chunk.finished = True
        self._slots.free_extra(extra_slots)
        self._release(run.slot)
        self._report_soon(chunk)

    def _begin(self, run: AsyncRun) -> Outcome | None:
        """Check that the job may start, and record it; or its outcome if it may not.

        On the event loop, right before the call: a rule may have been set since the job was given.
        """
        now = monotonic()
        refused = self._start_check.refuse(run.chunk, run.job, now)
        if refused is not None and refused.state is State.CANCELLED:
            fire(self._app, "cancelled", run.job, refused)
        if refused is not None:
            return refused
        timeout = run.task.timeout_of(run.job)
        run.began = now
        if timeout:
            run.deadline = now + timeout
            run.timer = _running_loop().call_later(timeout, self._on_timeout, run)
        self._slots.hold(run.slot, run.job, run.deadline)
        return None

    def _on_timeout(self, run: AsyncRun) -> None:
        run.interrupts += 1
        run.interrupted_at = monotonic()
        if run.running is not None:
            run.running.cancel("timeout")

    async def _run_job(self, run: AsyncRun) -> None:
        from asyncio import CancelledError

        try:
            outcome = self._begin(run)
            if outcome is None:
                run.chunk.ran += 1
                last_look = partial(self._start_check.last_look, run.chunk.rules)
                outcome = await run_async(self._app, run.task, run.job, last_look)
        except (CancelledError, JobTimeout, JobInterrupted) as error:
            # Cancelled before it started, or outside the task's own code.
            reason = error.args[0] if error.args else "shutdown"
            outcome = interrupted_outcome(self._app, run.task, run.job, reason, run.began)
        except Exception:
            # A bug in Penstock, not in the task. A lapse, so that it cannot repeat for ever.
            log.exception(
                "job %s of %s could not be run: an error of the worker; it counts a lapse",
                run.job.id,
                run.job.task,
            )
            outcome = lapsed()
        if run.timer is not None:
            run.timer.cancel()
        if not run.given_up and self.runs.pop(run.slot, None) is run:
            run.chunk.seconds += monotonic() - run.began
            self._add_outcome(run, run.job, outcome)
        if not run.job.at_most_once:  # their slot is freed by `settled`
            self._release(run.slot)
        self._report_soon(run.chunk)

    def _add_outcome(self, run: AsyncRun, job: Job[Any], outcome: Outcome | None) -> None:
        if job.at_most_once:
            run.chunk.slot = run.slot
            outcome = outcome and at_most_once_outcome(outcome)
        run.chunk.done.append((job, outcome))

    def _release(self, slot: int) -> None:
        self._slots.free(slot)
        if self._in_use > self.count:
            self._in_use -= 1
            self._spare.append(slot)
        else:
            self._free.append(slot)
        self._start_more()

    def _report_soon(self, chunk: Chunk) -> None:
        # One report for all that ended in this iteration of the event loop.
        if not self._to_report:
            _running_loop().call_soon(self._report_all)
        self._to_report[id(chunk)] = chunk

    def _report_all(self) -> None:
        chunks, self._to_report = self._to_report, {}
        for chunk in chunks.values():
            self._report(chunk)


def _running_loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop

    return get_running_loop()
