"""The keeper of one detached job: a process that holds its lock, renews its lease, and settles it.

Of the user's code it only imports the app; the task's function runs in a further process
(`run_process.py`), so that no job can keep its keeper from renewing. A keeper that is killed leaves
what any dead worker leaves: a lease that ends.

    python -m penstock.worker keep '{"target": "shop:app", ...}'
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.app.store_retry import until_it_answers
from penstock.app.version import RELEASE
from penstock.broker.views import Note, WorkerRow
from penstock.enqueue.tracing import told_settled
from penstock.errors import Refused
from penstock.job import ENDED, Job, Outcome, State
from penstock.run.attempt import fire
from penstock.worker.detached.after_crash import outcome_after_crash
from penstock.worker.detached.exit_codes import Exit, code_of, describe_keeper_exit
from penstock.worker.detached.log_file import cut_to_size
from penstock.worker.detached.process_limits import ProcessLimits
from penstock.worker.detached.processes import become_subreaper, kill_descendants, reap_orphans
from penstock.worker.detached.run_process import RunProcess
from penstock.worker.detached.state_folder import RunFile, StateFolder
from penstock.worker.failure_log import FailureLog
from penstock.worker.hands import interrupted_outcome
from penstock.worker.job_process import ProcessGone
from penstock.worker.outage_log import OutageLog

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

_CHECK_SECONDS = 1.0  # how often it renews, and checks for cancellation and limits
_LEAVE_SECONDS = 15.0  # for the run process to close its resources and exit after its answer

log = logging.getLogger("penstock.detached")
monotonic = time.monotonic


class KeeperConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper gets on its command line, which any user of the host can read: no secrets."""

    target: str
    job: str
    attempt: int
    worker: str  # the row that claimed the job, which the keeper renews from now on
    rules: int  # the version of the rules when it was claimed
    folder: str
    lease: float
    grace: float
    tags: tuple[str, ...] = ()
    log_level: str = "info"
    log_format: str = "text"

    @property
    def output(self) -> LogOutput:
        return LogOutput(self.log_level, self.log_format)


class Keeper:
    """Keeps one attempt at one job; `run` returns the exit code."""

    def __init__(self, config: KeeperConfig, run_file: RunFile, unlock: Callable[[], None]) -> None:
        self._config = config
        self._run_file = run_file
        self._unlock = unlock
        self._log = StateFolder(Path(config.folder)).file(config.job, "log")
        self._settled = threading.Event()  # renewing may stop
        self._process: RunProcess | None = None
        self._ended = threading.Event()  # the run process has an outcome, or died
        self._outcome: Outcome | None = None
        self._death: str | None = None  # how the run process ended, if without an outcome
        self._exceeded: str | None = None  # the limit for which it was killed
        self._interrupt_reason: str | None = None
        self._kill_at: float | None = None
        self._deadline: float | None = None
        self._began = monotonic()
        self.unlocks = False  # from now on it releases the lock by itself
        self._limits = ProcessLimits()
        self._maybe_stale = False  # the lease had ended: perhaps another attempt has the job
        self._stale = False
        self._outage = OutageLog("the job goes on, renewing is tried again", log.name)

    def stop(self) -> None:
        """End the attempt and have the job put back. Safe in a signal handler."""
        self._interrupt("shutdown")

    def run(self, app: App) -> Exit:
        """Run the job and settle it."""
        job = until_it_answers(lambda: app.broker.get(self._config.job))
        if job is None:
            return Exit.MISSING
        if job.state in ENDED:
            return Exit.DONE if job.state is State.SUCCEEDED else Exit.NO_OUTCOME
        task = app.task_named(job.task)
        if task is None or task.declared:
            return Exit.MISSING
        if not self._is_held(job):
            return Exit.LOCKED
        self.unlocks = True
        self._note_start(app, job)
        self._limits = ProcessLimits.of(task)
        runner = threading.Thread(target=self._run_job, args=(task, job), daemon=True)
        renewal = threading.Thread(target=self._renew_until_settled, args=(app,), daemon=True)
        runner.start()
        renewal.start()
        self._enforce_limits()
        runner.join()
        for pid in kill_descendants(os.getpid()):
            log.error("job %s: its process %d was killed and is still there", job.id, pid)
        cut_to_size(self._log)
        # Before settling: the next attempt may start at once, and must not find the lock held.
        # Until then the row in the store keeps other attempts out.
        self._unlock()
        code = self._settle(app, task, job)
        self._settled.set()
        renewal.join()
        until_it_answers(lambda: app.broker.recover(dead=self._config.worker, started=()))
        return code

    def _note_start(self, app: App, job: Job[Any]) -> None:
        process = msgspec.json.encode({"host": self._run_file.host, "pid": self._run_file.pid})
        note = Note("event", "started", process, app.clock.now())
        until_it_answers(lambda: app.broker.note(job, note))

    def _is_held(self, job: Job[Any] | None) -> bool:
        return (
            job is not None
            and job.state is State.RUNNING
            and job.attempt == self._config.attempt
            and job.worker == self._config.worker
        )

    def _run_job(self, task: Task[..., Any], job: Job[Any]) -> None:
        process = None
        try:
            process = self._process = RunProcess(self._config.target, job, self._config.output)
            process.wait_until_up()
            self._began = monotonic()
            if timeout := task.timeout_of(job):
                self._deadline = self._began + timeout
            if self._interrupt_reason is not None:
                self._death = "it was interrupted before it began"
                return
            self._outcome = process.run(job, self._config.rules)
        except ProcessGone as gone:
            self._death = str(gone)
        except OSError as error:
            self._death = str(error)
        finally:
            self._ended.set()
            if process is not None:
                process.close(_LEAVE_SECONDS)

    def _renew_until_settled(self, app: App) -> None:
        """Renew the lease and look for a cancellation; on a thread of its own."""
        every = min(_CHECK_SECONDS, self._config.lease / 3)
        self._renew(app)
        while not self._settled.wait(every):
            self._renew(app)

    def _enforce_limits(self) -> None:
        """Until the job has ended: interrupt it at its timeout, kill it if a limit is exceeded."""
        while not self._ended.is_set():
            now = monotonic()
            if self._deadline is not None and now >= self._deadline:
                self._interrupt("timeout")
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                self._kill()
            if self._process is not None:
                reap_orphans(self._process.pid)
            self._check_limits()
            cut_to_size(self._log)
            deadline = self._deadline if self._interrupt_reason is None else None
            due = [at for at in (self._kill_at, deadline) if at is not None]
            self._ended.wait(max(0.0, min([*due, now + _CHECK_SECONDS]) - monotonic()))

    def _check_limits(self) -> None:
        if self._interrupt_reason is None and (exceeded := self._limits.exceeded(os.getpid())):
            log.warning("job %s is killed: %s; its retry rule decides", self._config.job, exceeded)
            self._exceeded = exceeded
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        kill_descendants(os.getpid())

    def _interrupt(self, reason: str) -> None:
        """Interrupt the job; it is killed if it does not end within the grace."""
        if self._interrupt_reason is not None:
            return
        self._interrupt_reason = reason
        self._kill_at = monotonic() + self._config.grace
        if self._process is not None:
            self._process.interrupt(reason)

    def _renew(self, app: App) -> None:
        try:
            renewed = app.broker.renew([self._row(app)])
            self._maybe_stale = self._maybe_stale or bool(renewed.lapsed)
            if self._maybe_stale and not self._is_held(app.broker.get(self._config.job)):
                # Another attempt has the job by now: end this one.
                self._stale, self._interrupt_reason, self._kill_at = True, "shutdown", monotonic()
            self._maybe_stale = False
        except Exception as error:
            self._outage.log(error)
            return
        if self._config.job in renewed.cancelled:
            self._interrupt("cancelled")

    def _row(self, app: App) -> WorkerRow:
        return WorkerRow(
            id=self._config.worker,
            app=app.name,
            tags=frozenset(self._config.tags),
            queues=(),
            host=self._run_file.host,
            pid=self._run_file.pid,
            lease=self._config.lease,
            started_at=app.clock.now() - (monotonic() - self._began),
            penstock=RELEASE,
            running=1,
        )

    def _settle(self, app: App, task: Task[..., Any], job: Job[Any]) -> Exit:
        if self._stale:
            log.warning(
                "job %s: the lease of attempt %d had ended and another attempt has the job; this "
                "one was killed, its outcome is dropped",
                job.id,
                job.attempt,
            )
            return Exit.NO_OUTCOME
        outcome = self._outcome if self._death is None else self._died(app, task, job, self._death)
        if outcome is None:  # the job settled itself, in a transaction of its own
            return Exit.DONE
        FailureLog(app).log(job, outcome)
        if until_it_answers(lambda: app.broker.settle([(job, outcome)])) != [True]:
            # Refused, unless an earlier try was carried out and only its answer was lost.
            stored = until_it_answers(lambda: app.broker.get(job.id))
            if stored is None or stored.attempt != job.attempt or stored.state not in ENDED:
                return Exit.NO_OUTCOME
        told_settled(app)([(job, outcome)])
        if self._death is not None and self._interrupt_reason is None:
            fire(app, "crashed" if outcome.lapses else "failed", job, outcome)
            return Exit.NO_OUTCOME
        return code_of(outcome)

    def _died(self, app: App, task: Task[..., Any], job: Job[Any], death: str) -> Outcome:
        if self._interrupt_reason is not None:
            return interrupted_outcome(app, task, job, self._interrupt_reason, self._began)
        now = app.clock.now()
        started_at = now - (monotonic() - self._began)
        return outcome_after_crash(task, job, self._exceeded or death, now, started_at)


def main(config: KeeperConfig) -> int:
    """Take the lock, before any of the user's code is imported; then run the job."""
    log_to_stderr(config.output)
    folder = StateFolder(Path(config.folder))
    run_file = RunFile.of_this_process(config.job, config.attempt, config.worker)
    try:
        folder.make()
        lock = folder.lock(config.job)
        if lock is None:
            log.warning(
                "job %s: another process of this host runs it; attempt %d is put back",
                config.job,
                config.attempt,
            )
            return Exit.LOCKED
        folder.write(run_file)
    except (OSError, Refused) as error:
        log.error(  # noqa: TRY400
            "job %s: its files cannot be written: %s; attempt %d is put back",
            config.job,
            error,
            config.attempt,
        )
        return Exit.MISSING
    become_subreaper()
    keeper = Keeper(config, run_file, lambda: folder.unlock(config.job, lock))

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        keeper.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    log.info("job %s: attempt %d starts", config.job, config.attempt)
    code = _load_and_run(keeper, config)
    folder.remove_run(run_file)
    if not keeper.unlocks:
        folder.unlock(config.job, lock)
    log.info(
        "job %s: attempt %d has ended, exit code %d (%s)",
        config.job,
        config.attempt,
        code,
        describe_keeper_exit(code),
    )
    sys.stdout.flush()
    return code


def _load_and_run(keeper: Keeper, config: KeeperConfig) -> Exit:
    from penstock.app.locate import load_app

    try:
        app = load_app(config.target)
    except Exception:
        log.exception(
            "job %s: its code in %s could not be loaded; attempt %d is put back",
            config.job,
            config.target,
            config.attempt,
        )
        return Exit.MISSING
    try:
        return keeper.run(app)
    finally:
        app.close()
