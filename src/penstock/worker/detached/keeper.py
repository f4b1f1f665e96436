"""The keeper of one detached job: holds its lock and its lease, and settles what becomes of it.

It runs nothing of the user's but the import of the app, so nothing that a job does keeps it from
its heartbeat. Killed at any point it leaves what any dead worker leaves: a lease that ends.

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
from penstock.app.version import release
from penstock.broker.views import Note, WorkerRow
from penstock.errors import Refused
from penstock.job import ENDED, Job, Outcome, State
from penstock.run.attempt import fire
from penstock.worker.detached.after_death import after_death
from penstock.worker.detached.exit_codes import Exit, code_of
from penstock.worker.detached.limits import ProcessLimits
from penstock.worker.detached.log_file import cut_to_size
from penstock.worker.detached.processes import end_descendants, let_strays_go, take_in_strays
from penstock.worker.detached.run_process import RunProcess
from penstock.worker.detached.state_folder import Folder, Run
from penstock.worker.failures import Failures
from penstock.worker.hands import cut_short
from penstock.worker.job_process import ProcessGone

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

_LOOK_SECONDS = 1.0  # how often it renews, hears of a cancellation, and weighs the job
_LEAVE_SECONDS = 15.0  # for a process that has answered to close its resources, and go by itself

log = logging.getLogger("penstock.detached")
monotonic = time.monotonic


class KeeperConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper is told at birth. No secret is in it: it can be read by everybody here."""

    target: str
    job: str
    attempt: int
    worker: str  # the row that claimed the job, its own from now on
    rules: int  # their version when it was claimed
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
    """Keeps one attempt at one job; `run` gives the exit code."""

    def __init__(self, config: KeeperConfig, run: Run, unlock: Callable[[], None]) -> None:
        self._config = config
        self._run = run
        self._unlock = unlock
        self._log = Folder(Path(config.folder)).file(config.job, "log")
        self._over = threading.Event()  # the heart may stop
        self._process: RunProcess | None = None
        self._answered = threading.Event()  # there is an outcome, or there will be none
        self._outcome: Outcome | None = None
        self._death: str | None = None  # how the process ended, if it gave no outcome
        self._exceeded: str | None = None  # the limit that it was killed for
        self._verdict: str | None = None
        self._hard_at: float | None = None
        self._deadline: float | None = None
        self._began = monotonic()
        self.began = False  # from then on it gives back the lock by itself
        self._limits = ProcessLimits()
        self._doubtful = False  # the row had been given up: perhaps the job is somebody else's
        self._stale = False
        self._said_at: float | None = None

    def stop(self) -> None:
        """Have the job put back. Safe in a signal handler."""
        self._give("shutdown")

    def run(self, app: App) -> Exit:
        """Keep the job until it is settled."""
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
        self.began = True
        self._note_start(app, job)
        self._limits = ProcessLimits.of(task)
        runner = threading.Thread(target=self._have_it_run, args=(task, job), daemon=True)
        beat = threading.Thread(target=self._beat, args=(app,), daemon=True)
        runner.start()
        beat.start()
        self._keep()
        runner.join()
        for pid in end_descendants(os.getpid()):
            log.error("job %s: process %d does not end", job.id, pid)
        cut_to_size(self._log)
        # Before it is settled: a next attempt, which may come at once, must not meet it. Until then
        # the row keeps everybody else out.
        self._unlock()
        code = self._settle(app, task, job)
        self._over.set()
        beat.join()
        until_it_answers(lambda: app.broker.recover(dead=self._config.worker, started=()))
        return code

    def _note_start(self, app: App, job: Job[Any]) -> None:
        where = msgspec.json.encode({"host": self._run.host, "pid": self._run.pid})
        note = Note("event", "started", where, app.clock.now())
        until_it_answers(lambda: app.broker.note(job, note))

    def _is_held(self, job: Job[Any] | None) -> bool:
        return (
            job is not None
            and job.state is State.RUNNING
            and job.attempt == self._config.attempt
            and job.worker == self._config.worker
        )

    def _have_it_run(self, task: Task[..., Any], job: Job[Any]) -> None:
        process = None
        try:
            process = self._process = RunProcess(self._config.target, job, self._config.output)
            process.wait_until_up()
            self._began = monotonic()
            if timeout := task.timeout_of(job):
                self._deadline = self._began + timeout
            if self._verdict is not None:
                self._death = "not begun"
                return
            self._outcome = process.run(job, self._config.rules)
        except ProcessGone as gone:
            self._death = str(gone)
        except OSError as error:
            self._death = str(error)
        finally:
            self._answered.set()
            if process is not None:
                process.close(_LEAVE_SECONDS)

    def _beat(self, app: App) -> None:
        """Renew until the end of all: beside whatever else has to be waited for."""
        every = min(_LOOK_SECONDS, self._config.lease / 3)
        self._renew(app)
        while not self._over.wait(every):
            self._renew(app)

    def _keep(self) -> None:
        """End the job when its time is up or its limits are exceeded, until it has ended."""
        while not self._answered.is_set():
            now = monotonic()
            if self._deadline is not None and now >= self._deadline:
                self._give("timeout")
            if self._hard_at is not None and now >= self._hard_at:
                self._hard_at = None
                self._kill()
            if self._process is not None:
                let_strays_go(self._process.pid)
            self._weigh()
            cut_to_size(self._log)
            deadline = self._deadline if self._verdict is None else None
            due = [at for at in (self._hard_at, deadline) if at is not None]
            self._answered.wait(max(0.0, min([*due, now + _LOOK_SECONDS]) - monotonic()))

    def _weigh(self) -> None:
        if self._verdict is None and (exceeded := self._limits.exceeded(os.getpid())):
            log.warning("job %s is killed: %s", self._config.job, exceeded)
            self._exceeded = exceeded
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        end_descendants(os.getpid())

    def _give(self, verdict: str) -> None:
        """Interrupt the job; what does not end within the grace is killed."""
        if self._verdict is not None:
            return
        self._verdict = verdict
        self._hard_at = monotonic() + self._config.grace
        if self._process is not None:
            self._process.interrupt(verdict)

    def _renew(self, app: App) -> None:
        try:
            renewed = app.broker.renew([self._row(app)])
            self._doubtful = self._doubtful or bool(renewed.lapsed)
            if self._doubtful and not self._is_held(app.broker.get(self._config.job)):
                # It is somebody else's by now: what this attempt still does is of no use.
                self._stale, self._verdict, self._hard_at = True, "shutdown", monotonic()
            self._doubtful = False
        except Exception as error:
            if self._said_at is None or monotonic() - self._said_at > 60.0:
                self._said_at = monotonic()
                log.error("the store does not answer: %s: %s", type(error).__name__, error)  # noqa: TRY400
            return
        self._said_at = None
        if self._config.job in renewed.cancelled:
            self._give("cancelled")

    def _row(self, app: App) -> WorkerRow:
        return WorkerRow(
            id=self._config.worker,
            app=app.name,
            tags=frozenset(self._config.tags),
            queues=(),
            host=self._run.host,
            pid=self._run.pid,
            lease=self._config.lease,
            started_at=app.clock.now() - (monotonic() - self._began),
            penstock=release(),
            running=1,
        )

    def _settle(self, app: App, task: Task[..., Any], job: Job[Any]) -> Exit:
        if self._stale:
            log.warning("job %s: attempt %d is not held any more", job.id, job.attempt)
            return Exit.NO_OUTCOME
        outcome = self._outcome if self._death is None else self._died(app, task, job, self._death)
        if outcome is None:  # it settled itself
            return Exit.DONE
        Failures(app).tell(job, outcome)
        if until_it_answers(lambda: app.broker.settle([(job, outcome)])) != [True]:
            kept = until_it_answers(lambda: app.broker.get(job.id))
            if kept is None or kept.attempt != job.attempt or kept.state not in ENDED:
                return Exit.NO_OUTCOME
        if self._death is not None and self._verdict is None:
            fire(app, "failed", job, outcome)
            return Exit.NO_OUTCOME
        return code_of(outcome)

    def _died(self, app: App, task: Task[..., Any], job: Job[Any], death: str) -> Outcome:
        if self._verdict is not None:
            return cut_short(app, task, job, self._verdict, self._began)
        now = app.clock.now()
        started_at = now - (monotonic() - self._began)
        return after_death(task, job, self._exceeded or death, now, started_at)


def main(config: KeeperConfig) -> int:
    """A keeper's life: the lock first, before anything of the user's is imported."""
    log_to_stderr(config.output)
    folder = Folder(Path(config.folder))
    run = Run.here_and_now(config.job, config.attempt, config.worker)
    try:
        folder.make()
        lock = folder.lock(config.job)
        if lock is None:
            log.warning("job %s: another process of this host has it", config.job)
            return Exit.LOCKED
        folder.write(run)
    except (OSError, Refused) as error:
        log.error("job %s: its files cannot be written: %s", config.job, error)  # noqa: TRY400
        return Exit.MISSING
    take_in_strays()
    keeper = Keeper(config, run, lambda: folder.unlock(config.job, lock))

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        keeper.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    log.info("job %s, attempt %d", config.job, config.attempt)
    code = _kept(keeper, config)
    folder.ended(run)
    if not keeper.began:
        folder.unlock(config.job, lock)
    log.info("job %s, attempt %d: ended with %d", config.job, config.attempt, code)
    sys.stdout.flush()
    return code


def _kept(keeper: Keeper, config: KeeperConfig) -> Exit:
    from penstock.app.locate import load_app

    try:
        app = load_app(config.target)
    except Exception:
        log.exception("job %s: its code could not be loaded", config.job)
        return Exit.MISSING
    try:
        return keeper.run(app)
    finally:
        app.close()
