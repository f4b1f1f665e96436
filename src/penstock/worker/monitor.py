"""The monitor: a thread that watches over time while the others work.

It beats the pulse that the supervisor looks for, ends jobs whose time is up, and notices hands that
have stopped at one job of many. A job is told twice; what has not ended two seconds after the first
time will not, and its hand is given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.job import Job
from penstock.worker.async_hands import AsyncHands, Flight
from penstock.worker.chunk import Chunk
from penstock.worker.hands import Hand, Hands, cut_short

PULSE_SECONDS = 0.1
_STRIKE_SECONDS = 1.0
_TERM_SECONDS = 2.0  # a process has this long between SIGTERM and SIGKILL

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Monitor(threading.Thread):
    """Looks ten times a second."""

    def __init__(
        self,
        hands: Hands,
        async_hands: AsyncHands,
        stuck: Callable[[str], None],
        beat: Callable[[], None],
    ) -> None:
        super().__init__(name="penstock-monitor", daemon=True)
        self._hands = hands
        self._async_hands = async_hands
        self._report = hands.bench.report
        self._stuck = stuck
        self._beat = beat
        self._over = threading.Event()

    def close(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(PULSE_SECONDS):
            try:
                self._beat()
                self._watch(monotonic())
            except Exception:
                log.exception("the monitor failed, and goes on")

    def _watch(self, now: float) -> None:
        for hand in list(self._hands.hands):
            self._watch_hand(hand, now)
        for flight in list(self._async_hands.flights.values()):
            self._watch_flight(flight, now)

    def _watch_hand(self, hand: Hand, now: float) -> None:
        job, chunk = hand.current, hand.chunk
        if job is None or chunk is None or hand.lost:
            return
        if hand.deadline and now >= hand.deadline:
            self._time_is_up(hand, job, chunk, now - hand.struck_at)
        elif not chunk.slow and now - hand.began >= PULSE_SECONDS and (chunk.jobs or chunk.done):
            chunk.slow = True
            self._report(chunk)

    def _time_is_up(self, hand: Hand, job: Job[Any], chunk: Chunk, waited: float) -> None:
        between = _TERM_SECONDS if hand.elsewhere else _STRIKE_SECONDS
        if hand.strikes and waited < between:
            return
        jobs = hand.running
        if hand.strikes < 2 or hand.elsewhere:
            hand.interrupt(job, "timeout")
        elif hand.give_up(job):
            task = self._hands.bench.app.task_named(job.task)
            if task is not None:
                for each in jobs:
                    outcome = cut_short(self._hands.bench.app, task, each, "timeout", hand.began)
                    chunk.done.append((each, outcome))
            chunk.finished = True
            if not job.at_most_once:
                self._hands.bench.slots.free(hand.index)
                self._hands.bench.slots.free_beside(hand.places)
            self._report(chunk)
            self._hands.replace(hand)
            self._stuck(f"job {job.id} ({job.task}) does not end at its timeout")

    def _watch_flight(self, flight: Flight, now: float) -> None:
        if not flight.deadline or now < flight.deadline:
            return
        if not flight.strikes:
            self._async_hands.interrupt(flight, "timeout")
        elif now - flight.struck_at < _STRIKE_SECONDS:
            return
        elif flight.strikes == 1:
            self._async_hands.interrupt(flight, "timeout")
        else:
            self._async_hands.give_up(flight, "timeout")
            self._stuck(f"job {flight.job.id} ({flight.job.task}) does not end when cancelled")
