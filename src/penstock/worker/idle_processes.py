"""Job processes that wait for their next job, shared by all hands of a worker.

The one that was used last is used next, so there are as many as jobs that run at the same time.
After ten seconds without a job a process ends; the last one of a worker is kept, since starting one
takes as long as importing the app. None of them has a connection to the store while it waits.
"""

from __future__ import annotations

import threading
import time

from penstock.worker.job_process import JobProcess

IDLE_SECONDS = 10.0
KEPT = 1
_LEAVE_SECONDS = 5.0  # for its resources to close

monotonic = time.monotonic


class IdleProcesses:
    """Filled and used by hands; `trim` is called now and then."""

    def __init__(self) -> None:
        self._idle: list[tuple[JobProcess, float]] = []  # and since when; the last used last
        self._leaving: list[tuple[JobProcess, float]] = []
        self._lock = threading.Lock()

    def take(self) -> JobProcess | None:
        """The one that was used last."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                process, _ = self._idle.pop()
            if process.alive:
                return process
            process.close(timeout=0)

    def put(self, process: JobProcess) -> None:
        with self._lock:
            self._idle.append((process, monotonic()))

    def trim(self) -> None:
        """End those that were idle for too long. Waits for none of them."""
        now = monotonic()
        with self._lock:
            while len(self._idle) > KEPT and now - self._idle[0][1] > IDLE_SECONDS:
                process, _ = self._idle.pop(0)
                process.leave()
                self._leaving.append((process, now))
            gone = [each for each in self._leaving if _is_over(*each, now)]
            self._leaving = [each for each in self._leaving if each not in gone]
        for process, _ in gone:
            process.close(timeout=0)

    def close(self) -> None:
        """End all of them, at the same time."""
        with self._lock:
            ending, self._idle, self._leaving = [*self._idle, *self._leaving], [], []
        for process, _ in ending:
            process.leave()
        for process, _ in ending:
            process.close()


def _is_over(process: JobProcess, since: float, now: float) -> bool:
    return not process.alive or now - since > _LEAVE_SECONDS
