"""All that runs jobs in a worker (threads, event loop, processes), and the monitor over it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.worker.async_hands import AsyncHands
from penstock.worker.chunk import Chunk
from penstock.worker.hand_context import HandContext
from penstock.worker.hands import Hands, all_among, cut_short
from penstock.worker.monitor import Monitor


class HandPool:
    """Threads and an event loop; `stuck` hears of jobs that do not end, `beat` comes regularly."""

    def __init__(
        self,
        bench: HandContext,
        threads: int,
        async_slots: int,
        stuck: Callable[[str], None],
        beat: Callable[[], None],
    ) -> None:
        self._bench = bench
        self._hands = Hands(bench, threads)
        self._async_hands = AsyncHands(bench, async_slots, threads)
        self._monitor = Monitor(self._hands, self._async_hands, stuck, beat)

    def start(self) -> None:
        self._hands.start()
        self._monitor.start()

    def give(self, chunk: Chunk) -> None:
        """Have these jobs run."""
        if chunk.asynchronous:
            self._async_hands.give(chunk)
        else:
            self._hands.chunks.put(chunk)

    def settled(self, chunk: Chunk) -> None:
        """The store has answered for the jobs of this chunk: slots kept until then are free."""
        if chunk.settled is not None:
            chunk.settled.set()
        if chunk.slot is not None:
            self._async_hands.settled(chunk.slot)

    def interrupt(self, verdict: str, ids: Collection[str] | None = None) -> None:
        """End these jobs, or all of them, for this reason."""
        for hand in self._hands.hands:
            job = hand.current
            if job is not None and all_among(hand.batch or (job,), ids):
                hand.interrupt(job, verdict)
        for flight in list(self._async_hands.flights.values()):
            if all_among(flight.batch or (flight.job,), ids):
                self._async_hands.interrupt(flight, verdict)

    def abandon(self) -> bool:
        """Put back what was interrupted and has not ended; False if there was nothing.

        Processes are killed. Threads cannot be: they are left to themselves.
        """
        abandoned = False
        for hand in self._hands.hands:
            job, chunk, jobs = hand.current, hand.chunk, hand.running
            task = None if job is None else self._bench.app.task_named(job.task)
            if job is None or chunk is None or task is None:
                continue
            if hand.elsewhere:
                hand.interrupt(job, "shutdown")
            elif hand.give_up(job):
                abandoned = True
                for each in jobs:
                    outcome = cut_short(self._bench.app, task, each, "shutdown", hand.began)
                    chunk.done.append((each, outcome))
                self._bench.report(chunk)
        for flight in list(self._async_hands.flights.values()):
            abandoned = True
            self._async_hands.give_up(flight, "shutdown")
        return abandoned

    def close(self, patience: float) -> bool:
        """End all of it, and close the app's resources; False if a thread is left."""
        clean = self._hands.close(patience)
        self._bench.app.resources.close()  # while there is a loop: some of them live on it
        clean = self._async_hands.close(patience) and clean
        self._monitor.close()
        return clean
