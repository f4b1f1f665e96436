"""Jobs of `async def` tasks: many at once, on one event loop in one thread.

The thread is started with the first chunk. Everything below `_accept` runs on the loop; other
threads only put chunks in, cancel, and read `flights`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import JobInterrupted, JobTimeout
from penstock.job import Job, Outcome, lapsed, put_back
from penstock.run.attempt import run_async
from penstock.run.batch import run_together_async
from penstock.task.batch import BatchTask, as_batch_task
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.hands import begin_together, cut_short, leave_out, once

if TYPE_CHECKING:
    from penstock.task.task import Task

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Flight:
    """One job that runs on the loop."""

    __slots__ = (
        "batch",
        "began",
        "chunk",
        "deadline",
        "job",
        "lost",
        "running",
        "slot",
        "strikes",
        "struck_at",
        "task",
        "timer",
    )

    def __init__(self, chunk: Chunk, job: Job[Any], task: Task[..., Any], slot: int) -> None:
        self.chunk = chunk
        self.job = job
        self.batch: Sequence[Job[Any]] = ()  # that and those in the same call, of a batch task
        self.task = task
        self.slot = slot
        self.began = monotonic()
        self.deadline = 0.0
        self.strikes = 0
        self.struck_at = 0.0
        self.lost = False
        self.running: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class AsyncHands:
    """One event loop, and at most `count` jobs on it."""

    def __init__(
        self,
        bench: HandContext,
        count: int,
        first_slot: int,
    ) -> None:
        self.count = count
        self.flights: dict[int, Flight] = {}  # by slot
        self._bench = bench
        self._app = bench.app
        self._slots = bench.slots
        self._gate = bench.gate
        self._report = bench.report
        self._free = list(range(first_slot, first_slot + count))
        self._waiting: deque[Chunk] = deque()
        self._news: dict[int, Chunk] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def give(self, chunk: Chunk) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._turn, args=(self._loop,), name="penstock-async", daemon=True
            )
            self._thread.start()
        self._loop.call_soon_threadsafe(self._accept, chunk)

    def interrupt(self, flight: Flight, verdict: str) -> None:
        """Cancel this job, from whichever thread."""
        flight.strikes += 1
        flight.struck_at = monotonic()
        if self._loop is not None and flight.running is not None:
            self._loop.call_soon_threadsafe(flight.running.cancel, verdict)

    def give_up(self, flight: Flight, verdict: str) -> None:
        """It will not end: settle it without its word; what it still does counts for nothing."""
        if self.flights.pop(flight.slot, None) is flight:
            flight.lost = True
            for job in flight.batch or (flight.job,):
                outcome = cut_short(self._app, flight.task, job, verdict, flight.began)
                self._landed(flight, job, outcome)
            flight.chunk.finished = flight.chunk.together
            self._report(flight.chunk)

    def settled(self, slot: int) -> None:
        """The store knows how the at-most-once job of this slot ended; it may be used again."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._release, slot)

    def close(self, patience: float) -> bool:
        """End the loop; False if it does not within this many seconds."""
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
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
            if chunk.together:
                self._start_together(self._waiting.popleft())
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
            self._tell(chunk)
            return
        flight = Flight(chunk, job, task, self._free.pop())
        self.flights[flight.slot] = flight
        loop = asyncio.get_running_loop()
        flight.running = loop.create_task(self._fly(flight), name=f"{job.task} {job.id}")

    def _start_together(self, chunk: Chunk) -> None:
        task = as_batch_task(self._app.task_named(chunk.task))
        if task is None:
            chunk.done.extend((job, put_back("unknown task")) for job in chunk.take_back())
            jobs, deadline = list[Job[Any]](), 0.0
        else:
            jobs, deadline = begin_together(self._bench, chunk, task)
        if task is None or not jobs:
            chunk.finished = True
            self._tell(chunk)
            return
        flight = Flight(chunk, jobs[0], task, self._free.pop())
        places = self._slots.hold_beside(jobs[1:], deadline)
        flight.batch = leave_out(chunk, jobs, 1 + len(places))
        self._slots.hold(flight.slot, flight.job, deadline)
        self.flights[flight.slot] = flight
        loop = asyncio.get_running_loop()
        if deadline:
            flight.deadline = deadline
            flight.timer = loop.call_at(
                loop.time() + deadline - flight.began, self._time_is_up, flight
            )
        flight.running = loop.create_task(self._fly_together(flight, task, places), name=chunk.task)

    async def _fly_together(
        self, flight: Flight, task: BatchTask[Any, Any], places: Sequence[int]
    ) -> None:
        chunk, jobs = flight.chunk, flight.batch
        outcomes: Sequence[Outcome | None] = ()
        try:
            last_look = partial(self._gate.last_look, chunk.rules)
            outcomes = await run_together_async(self._app, task, jobs, last_look)
        except (asyncio.CancelledError, JobTimeout, JobInterrupted) as error:
            verdict = error.args[0] if error.args else "shutdown"
            outcomes = [cut_short(self._app, task, job, verdict, flight.began) for job in jobs]
        except Exception:
            log.exception("a batch of %s could not be run", chunk.task)
            outcomes = [lapsed()] * len(jobs)
        if flight.timer is not None:
            flight.timer.cancel()
        if not flight.lost and self.flights.pop(flight.slot, None) is flight:
            chunk.ran += len(jobs)
            chunk.seconds += monotonic() - flight.began
            chunk.done.extend(zip(jobs, outcomes, strict=True))
            chunk.finished = True
        self._slots.free_beside(places)
        self._release(flight.slot)
        self._tell(chunk)

    def _begin(self, flight: Flight) -> Outcome | None:
        """The last look and the note that it starts; or what becomes of it instead.

        Not before its own turn: others had theirs since, and a rule may have come meanwhile.
        """
        now = monotonic()
        refused = self._gate.refuse(flight.chunk, flight.job, now)
        if refused is not None:
            return refused
        timeout = flight.task.timeout_of(flight.job)
        flight.began = now
        if timeout:
            flight.deadline = now + timeout
            loop = asyncio.get_running_loop()
            flight.timer = loop.call_later(timeout, self._time_is_up, flight)
        self._slots.hold(flight.slot, flight.job, flight.deadline)
        return None

    def _time_is_up(self, flight: Flight) -> None:
        flight.strikes += 1
        flight.struck_at = monotonic()
        if flight.running is not None:
            flight.running.cancel("timeout")

    async def _fly(self, flight: Flight) -> None:
        try:
            outcome = self._begin(flight)
            if outcome is None:
                flight.chunk.ran += 1
                last_look = partial(self._gate.last_look, flight.chunk.rules)
                outcome = await run_async(self._app, flight.task, flight.job, last_look)
        except (asyncio.CancelledError, JobTimeout, JobInterrupted) as error:
            # Cancelled before it began, or while run itself was at it.
            verdict = error.args[0] if error.args else "shutdown"
            outcome = cut_short(self._app, flight.task, flight.job, verdict, flight.began)
        except Exception:
            # Ours, not the task's. Counted, so that it cannot go on for ever.
            log.exception("job %s could not be run", flight.job.id)
            outcome = lapsed()
        if flight.timer is not None:
            flight.timer.cancel()
        if not flight.lost and self.flights.pop(flight.slot, None) is flight:
            flight.chunk.seconds += monotonic() - flight.began
            self._landed(flight, flight.job, outcome)
        if not flight.job.at_most_once:  # of these `settled` does it, also if it was given up
            self._release(flight.slot)
        self._tell(flight.chunk)

    def _landed(self, flight: Flight, job: Job[Any], outcome: Outcome | None) -> None:
        if job.at_most_once:
            flight.chunk.slot = flight.slot
            outcome = outcome and once(outcome)
        flight.chunk.done.append((job, outcome))

    def _release(self, slot: int) -> None:
        self._slots.free(slot)
        self._free.append(slot)
        self._start_more()

    def _tell(self, chunk: Chunk) -> None:
        # One report for all that ended in this turn of the loop.
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._news[id(chunk)] = chunk

    def _tell_all(self) -> None:
        news, self._news = self._news, {}
        for chunk in news.values():
            self._report(chunk)
