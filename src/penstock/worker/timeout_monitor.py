"""The timeout monitor: a thread that interrupts jobs past their deadline.

A job is interrupted twice, a second apart; one that has not ended a second after that will not end:
it is settled as timed out and its hand is replaced. The monitor also writes the pulse that the
supervisor checks, and notices hands whose other jobs wait behind a long one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.job import Job
from penstock.worker.async_hands import AsyncHands, AsyncRun
from penstock.worker.chunk import Chunk
from penstock.worker.hands import Hand, Hands

PULSE_SECONDS = 0.1
_INTERRUPT_AGAIN_SECONDS = 1.0
_TERM_SECONDS = 2.0  # a process has this long between SIGTERM and SIGKILL

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class TimeoutMonitor(threading.Thread):
    """Checks ten times a second."""

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
        self._report = hands.context.report
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
                self._check(monotonic())
            except Exception:
                log.exception("the timeout monitor failed, and goes on")

    def _check(self, now: float) -> None:
        self._hands.processes.trim()
        for hand in list(self._hands.hands):
            self._check_hand(hand, now)
        for run in list(self._async_hands.runs.values()):
            self._check_async(run, now)

    def _check_hand(self, hand: Hand, now: float) -> None:
        job, chunk = hand.current, hand.chunk
        if job is None or chunk is None or hand.given_up:
            return
        hand.look_at_memory()
        if hand.deadline and now >= hand.deadline:
            self._on_timeout(hand, job, chunk, now - hand.interrupted_at)
        elif not chunk.slow and now - hand.began >= PULSE_SECONDS and (chunk.jobs or chunk.done):
            chunk.slow = True
            self._report(chunk)

    def _on_timeout(self, hand: Hand, job: Job[Any], chunk: Chunk, waited: float) -> None:
        between = _TERM_SECONDS if hand.in_own_process else _INTERRUPT_AGAIN_SECONDS
        if hand.interrupts and waited < between:
            return
        jobs = hand.running
        if hand.interrupts < 2 or hand.in_own_process:
            hand.interrupt(job, "timeout")
        elif hand.give_up(job):
            task = self._hands.context.app.task_named(job.task)
            if task is not None:
                hand.settle_given_up(jobs, task, chunk, "timeout")
            chunk.finished = True
            if not job.at_most_once:
                self._hands.context.slots.free(hand.index)
                self._hands.context.slots.free_extra(hand.extra_slots)
            self._report(chunk)
            self._hands.replace(hand)
            self._stuck(f"job {job.id} ({job.task}) does not end at its timeout")

    def _check_async(self, run: AsyncRun, now: float) -> None:
        if not run.deadline or now < run.deadline:
            return
        if not run.interrupts:
            self._async_hands.interrupt(run, "timeout")
        elif now - run.interrupted_at < _INTERRUPT_AGAIN_SECONDS:
            return
        elif run.interrupts == 1:
            self._async_hands.interrupt(run, "timeout")
        else:
            self._async_hands.give_up(run, "timeout")
            self._stuck(f"job {run.job.id} ({run.job.task}) does not end when cancelled")
