"""Adopts the detached processes that run on this host, and sees to the jobs of those that ended.

A process runs on when its worker stops. The next worker finds it in the state folder and adopts it:
from then on that worker waits for its end. Whatever the process has not settled itself, because it
died, is settled or recovered here. Adopting is no claim: the process's keeper goes on renewing its
lease.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.job import Job, State, put_back
from penstock.worker.detached.exit_codes import Exit, describe_keeper_exit
from penstock.worker.detached.processes import kill_marked, wait_for_end
from penstock.worker.failure_log import FailureLog, failed_attempt

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.worker.detached.state_folder import StateFolder

RETRY_SECONDS = 5.0  # after a process that could not start

log = logging.getLogger("penstock.worker")


class WatchedProcess(msgspec.Struct, kw_only=True):
    """A detached process of this host, started here or adopted: its keeper."""

    job: str
    attempt: int
    worker: str  # the row that holds the job
    renew_until: float = 0.0  # the launcher renews for it until it does so itself
    exit_code: int | None = None  # unknown for an adopted process: it is nobody's child here


class WatchedProcesses:
    """Used by the launcher's thread; each process has a thread that waits for its end."""

    def __init__(self, app: App, folder: StateFolder, lease: float) -> None:
        self.running: dict[str, WatchedProcess] = {}  # by the id of its row
        self.ended: list[WatchedProcess] = []  # whose jobs have not been seen to
        self._app = app
        self._broker = app.broker
        self._folder = folder
        self._lease = lease
        self._known: set[str] = set()  # rows whose files have been looked at
        self._ends: queue.SimpleQueue[WatchedProcess | None] = queue.SimpleQueue()
        self._failures = FailureLog(app)

    def watch(self, process: WatchedProcess, wait: Callable[[], int | None]) -> None:
        """Wait for this process on a thread of its own; `wait` returns its exit code."""

        def until_it_ends() -> None:
            process.exit_code = wait()
            self.report_end(process)
            self._broker.wake()

        self.running[process.worker] = process
        threading.Thread(target=until_it_ends, name="penstock-watch", daemon=True).start()

    def report_end(self, process: WatchedProcess | None) -> None:
        """Wake `collect_ended`, with a process that has ended. Called by any thread."""
        self._ends.put(process)

    def collect_ended(self, timeout: float) -> bool:
        """Whether a process has ended; waits this long for the first."""
        before = len(self.ended)
        with suppress(queue.Empty):
            process = self._ends.get(timeout=timeout) if timeout > 0 else self._ends.get_nowait()
            while True:
                if process is not None and self.running.pop(process.worker, None) is not None:
                    self.ended.append(process)
                process = self._ends.get_nowait()
        return len(self.ended) > before

    def adopt(self) -> None:
        """Watch every process of this host that another worker started, or an earlier one."""
        for run in self._folder.runs():
            if run.worker in self.running:
                self.running[run.worker].renew_until = 0.0  # its keeper renews by now
                continue
            if run.worker in self._known or not run.on_this_host:
                continue
            process = WatchedProcess(job=run.job, attempt=run.attempt, worker=run.worker)
            if run.alive:
                log.info(
                    "job %s (attempt %d) is adopted: it goes on in process %d, which an earlier or "
                    "another worker started",
                    run.job,
                    run.attempt,
                    run.pid,
                )
                self.watch(process, lambda run=run: wait_for_end(run.pid, run.started))
            else:
                self.ended.append(process)
            self._known.add(run.worker)

    def see_to_ended(self) -> None:
        """Settle or recover the jobs of processes that have ended, and remove their files."""
        while self.ended:
            process = self.ended[0]
            if killed := kill_marked(process.job, process.attempt):
                log.warning(
                    "job %s: killed %d processes that its attempt %d had left behind",
                    process.job,
                    killed,
                    process.attempt,
                )
            self._see_to_job(process)
            self._known.add(process.worker)
            for run in self._folder.runs(process.job):
                if run.worker == process.worker:
                    self._folder.remove_run(run)
            self.ended.pop(0)

    def _see_to_job(self, process: WatchedProcess) -> None:
        job = self._broker.get(process.job)
        if process.exit_code is not None:
            level = logging.WARNING if process.exit_code == Exit.MISSING else logging.INFO
            described = describe_keeper_exit(process.exit_code)
            log.log(level, "job %s: its process has ended: %s", process.job, described)
        if job is not None and job.attempt == process.attempt:
            if (failed := failed_attempt(job)) is not None:
                self._failures.log(job, failed)
            if job.state is State.RUNNING and job.worker == process.worker:
                self._end_attempt(job, process)
                return
        self._broker.recover(dead=process.worker, started=())

    def _end_attempt(self, job: Job[Any], process: WatchedProcess) -> None:
        """The process ended and has not settled its job: put it back, or count a lapse."""
        if process.exit_code in {Exit.LOCKED, Exit.MISSING}:
            locked = process.exit_code == Exit.LOCKED
            later = self._app.clock.now() + (self._lease / 3 if locked else RETRY_SECONDS)
            self._broker.settle([(job, put_back("locked" if locked else "no start", later))])
            self._broker.recover(dead=process.worker, started=())
            return
        self._broker.recover(dead=process.worker, started=[job.id])
        log.warning(
            "job %s: its process died during attempt %d; the job is ready again, or has failed if "
            "its crash budget is used up",
            job.id,
            process.attempt,
        )
