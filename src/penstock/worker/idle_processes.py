"""Starts job processes, and keeps those that wait for their next job, for all hands of a worker.

The one that was used last is used next, so there are as many as jobs that run at the same time.
After ten seconds without a job a process ends; the last one of a worker is kept, since starting one
takes as long as importing the app. Those of jobs that crashed before are forked from a template;
neither they nor the template are kept. None of them has a connection to the store while it waits.
"""

from __future__ import annotations

import threading
import time

from penstock.worker.forked_process import ProcessTemplate, can_fork
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
        self._template: ProcessTemplate | None = None
        self._may_fork = can_fork()

    def start(self, target: str, *, suspect: bool) -> JobProcess:
        """A new one. `suspect`: for a job that crashed before; there may be many at once."""
        return JobProcess(target, self._template_for(target) if suspect else None)

    def _template_for(self, target: str) -> ProcessTemplate | None:
        with self._lock:
            self._note_broken()
            if not self._may_fork:
                return None
            if self._template is None:
                self._template = ProcessTemplate(target)
            return self._template

    def _note_broken(self) -> None:
        """A template that refused, or that a job has killed: there is no other, for good."""
        if self._template is not None and self._template.broken:
            self._may_fork = False

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
            while self._too_many() and now - self._idle[0][1] > IDLE_SECONDS:
                process, _ = self._idle.pop(0)
                process.leave()
                self._leaving.append((process, now))
            gone = [each for each in self._leaving if _is_over(*each, now)]
            self._leaving = [each for each in self._leaving if each not in gone]
            self._note_broken()
            template = self._template
            if template is not None and template.idle_seconds() > IDLE_SECONDS:
                self._template = None
            else:
                template = None
        for process, _ in gone:
            process.close(timeout=0)
        if template is not None:
            template.close()

    def _too_many(self) -> bool:
        return len(self._idle) > KEPT or any(process.forked for process, _ in self._idle[:1])

    def close(self) -> None:
        """End all of them, at the same time."""
        with self._lock:
            ending, self._idle, self._leaving = [*self._idle, *self._leaving], [], []
            template, self._template = self._template, None
        for process, _ in ending:
            process.leave()
        for process, _ in ending:
            process.close()
        if template is not None:
            template.close()


def _is_over(process: JobProcess, since: float, now: float) -> bool:
    return not process.alive or now - since > _LEAVE_SECONDS
