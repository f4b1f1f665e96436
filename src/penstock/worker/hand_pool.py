"""Everything that runs jobs in a worker: threads, the event loop and the timeout monitor."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.worker.async_hands import AsyncHands
from penstock.worker.capacity import Capacity
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.hands import Hands, all_in
from penstock.worker.timeout_monitor import TimeoutMonitor


class HandPool:
    """Threads and an event loop. `stuck` is called for jobs that do not end, `beat` regularly."""

    def __init__(
        self,
        context: HandContext,
        threads: int,
        async_slots: int,
        stuck: Callable[[str], None],
        beat: Callable[[], None],
    ) -> None:
        self._context = context
        self._hands = Hands(context, threads)
        self._async_hands = AsyncHands(context, async_slots, threads)
        self._monitor = TimeoutMonitor(self._hands, self._async_hands, stuck, beat)

    def start(self) -> None:
        self._hands.start()
        self._monitor.start()

    def give(self, chunk: Chunk) -> None:
        """Have these jobs run."""
        if chunk.asynchronous:
            self._async_hands.give(chunk)
        else:
            self._hands.chunks.put(chunk)

    def resize(self, capacity: Capacity) -> None:
        """Run so many jobs at a time from now on; those that run go on."""
        self._hands.resize(capacity.threads)
        self._async_hands.resize(capacity.async_slots)

    def settled(self, chunk: Chunk) -> None:
        """The chunk's outcomes are stored: slots that were kept until then are free."""
        if chunk.settled is not None:
            chunk.settled.set()
        if chunk.slot is not None:
            self._async_hands.settled(chunk.slot)

    def interrupt(self, reason: str, ids: Collection[str] | None = None) -> None:
        """Interrupt these jobs, or all of them."""
        for hand in self._hands.hands:
            job = hand.current
            if job is not None and all_in(hand.batch or (job,), ids):
                hand.interrupt(job, reason)
        for run in list(self._async_hands.runs.values()):
            if all_in(run.batch or (run.job,), ids):
                self._async_hands.interrupt(run, reason)

    def abandon(self) -> bool:
        """Put back the jobs that were interrupted and have not ended; False if there are none.

        Processes are killed. Threads cannot be: they are abandoned.
        """
        abandoned = False
        for hand in self._hands.hands:
            job, chunk, jobs = hand.current, hand.chunk, hand.running
            task = None if job is None else self._context.app.task_named(job.task)
            if job is None or chunk is None or task is None:
                continue
            if hand.in_own_process:
                hand.interrupt(job, "shutdown")
            elif hand.give_up(job):
                abandoned = True
                hand.settle_given_up(jobs, task, chunk, "shutdown")
                self._context.report(chunk)
        for run in list(self._async_hands.runs.values()):
            abandoned = True
            self._async_hands.give_up(run, "shutdown")
        return abandoned

    def close(self, timeout: float) -> bool:
        """End all of it, and close the app's resources; False if a thread is left."""
        clean = self._hands.close(timeout)
        self._context.app.resources.close()  # before the event loop, which some of them need
        clean = self._async_hands.close(timeout) and clean
        self._monitor.close()
        return clean
