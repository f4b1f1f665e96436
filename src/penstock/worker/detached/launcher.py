"""The launcher: a thread of the supervisor that claims detached jobs and starts a keeper for each.

It claims with a spare worker row. When that returns a job, the row becomes the keeper's, which
renews it from then on, and the launcher makes a new spare row. Stopping the launcher ends no
detached process; what it finds running it adopts (`adoption.py`).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.version import RELEASE
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.job import Job
from penstock.worker.detached.adoption import RETRY_SECONDS, WatchedProcess, WatchedProcesses
from penstock.worker.detached.after_crash import made_progress, with_full_crash_budget
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.keeper import KeeperConfig
from penstock.worker.detached.state_folder import StateFolder, state_folder
from penstock.worker.detached.systemd_unit import start_method
from penstock.worker.drain_check import anything_left
from penstock.worker.hint_backoff import HintBackoff
from penstock.worker.outage_log import OutageLog

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.worker.capacity import LiveSettings
    from penstock.worker.child import ChildConfig

_COMMAND = (sys.executable, "-m", "penstock.worker", "keep")
_START_SECONDS = 60.0  # for a keeper to get so far that it renews its row itself
_ENDED_SECONDS = 1.0  # between two tries to see to the jobs of processes that have ended
_COUNT_SECONDS = 0.1
_QUIET_SECONDS = 1.0  # between two looks whether it is to claim again
_REMOVE_FILES_SECONDS = 3600.0
_LOG_EVERY = 60.0
_MOST_EVENTS = 1000  # of the history that are read to tell whether a job made progress

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Launcher(threading.Thread):
    """Runs detached jobs beside a supervisor, at most `limit` at a time on this worker."""

    def __init__(
        self,
        app: App,
        config: ChildConfig,
        folder: StateFolder,
        limit: int,
        quiet: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(name="penstock-launcher", daemon=True)
        self.drained = False
        self._app = app
        self._broker = app.broker
        self._config = config  # of the supervisor's children: same queues, tags, lease, grace
        self._lease = config.lease or app.queues.lease(config.queues)
        self._folder = folder
        self._limit = limit
        self._quiet = quiet  # whether nothing is to be claimed
        self._processes = WatchedProcesses(app, folder, self._lease)
        self._host = socket.gethostname()
        self._started_at = self._broker.clock.now()
        self._stopped = False
        self._spare = self._new_row()
        self._claim_unanswered = False  # then the spare row may hold a job
        self._renew_at = self._adopt_at = self._claim_at = 0.0
        self._remove_files_at = self._count_at = 0.0
        # Most hints are for ordinary jobs, and a detached job can start a moment later.
        self._hints = HintBackoff(free=0, first=0.01, longest=1.0)
        self._outage = OutageLog("detached jobs that run go on, no further one is started")
        self._folder_logged_at = -_LOG_EVERY

    def stop(self) -> None:
        """Start nothing more. Detached processes go on."""
        self._stopped = True
        self._processes.report_end(None)
        self._broker.wake()

    def run(self) -> None:
        log.info("%s", start_method().survives)
        while not self._stopped:
            try:
                self._step()
            except Exception as error:
                self._outage.log(error)
                self._sleep(1.0)
        with suppress(Exception):  # else its lease ends by itself
            self._broker.recover(dead=self._spare, started=())

    def _step(self) -> None:
        self._collect_ended(0.0)
        now = monotonic()
        if now >= self._adopt_at:
            self._adopt_at = now + self._lease
            self._processes.adopt()
        self._processes.see_to_ended()
        if now >= self._renew_at:
            self._renew(now)
        if now >= self._remove_files_at:
            self._remove_files_at = now + _REMOVE_FILES_SECONDS
            self._remove_files()
        if self._quiet():
            self._sleep(min(self._until_due(now), _QUIET_SECONDS))
        elif len(self._processes.running) >= self._limit:
            self._sleep(self._until_due(now))
        elif now >= self._claim_at and self._can_write() and self._claim():
            self._hints.found()
        else:
            self._wait(now)

    def _until_due(self, now: float) -> float:
        due = [self._renew_at, self._adopt_at]
        if self._processes.ended:
            due.append(now + _ENDED_SECONDS)
        return max(0.0, min(due) - now)

    def _wait(self, now: float) -> None:
        """Wait for a hint of the store until something else is due."""
        if self._config.drain and not self._processes.running and not self._processes.ended:
            if now >= self._count_at:
                self._count_at = now + _COUNT_SECONDS
                self.drained = not anything_left(self._broker, self._row())
            if self.drained:
                self._sleep(_COUNT_SECONDS)
                return
        if now < self._hints.ignore_until:
            self._sleep(min(self._until_due(now), self._hints.ignore_until - now))
            return
        timeout = min(self._until_due(now), max(0.0, self._claim_at - now))
        if self._config.drain:
            timeout = min(timeout, _COUNT_SECONDS)
        if self._broker.wait(self._config.queues, timeout):
            self._claim_at = self._hints.hint()

    def _sleep(self, seconds: float) -> None:
        if not self._stopped:
            self._collect_ended(seconds)

    def _collect_ended(self, timeout: float) -> None:
        if self._processes.collect_ended(timeout):
            self._claim_at = self._hints.ignore_until = 0.0  # there is room, and perhaps a retry

    def _can_write(self) -> bool:
        try:
            self._folder.check_writable()
        except Refused as error:
            now = monotonic()
            self._claim_at = now + RETRY_SECONDS
            if now - self._folder_logged_at >= _LOG_EVERY:
                self._folder_logged_at = now
                log.error("no detached job is started: %s", error)  # noqa: TRY400
            return False
        return True

    def _claim(self) -> bool:
        self._claim_at = monotonic() + self._broker.traits.poll_seconds()
        rules = (
            self._broker.traits.rules_version()
        )  # before the claim, so that a later change is noticed
        if self._claim_unanswered:
            self._broker.renew([self._row()], holding=())
            self._claim_unanswered = False
        self._claim_unanswered = True
        claimed = self._broker.claim([Wanted(self._row(), limit=1, queues=self._config.queues)])
        self._claim_unanswered = False
        jobs = claimed.jobs[0]
        if claimed.next_at is not None:
            due_in = max(0.0, claimed.next_at - self._broker.clock.now())
            self._claim_at = min(self._claim_at, monotonic() + due_in)
        for job in jobs:
            if job.lapses and self._made_progress(job):
                log.info(
                    "job %s made progress before its process was lost: its crash budget is whole "
                    "again, and it is resumed",
                    job.id,
                )
                self._broker.settle([(job, with_full_crash_budget(job))])
            else:
                self._start(job, rules)
        if jobs:
            self._claim_at = 0.0
        return bool(jobs)

    def _made_progress(self, job: Job[Any]) -> bool:
        history = self._broker.history(after=None, limit=_MOST_EVENTS, job=job.id)
        return made_progress(self._broker.notes(job.id), history, job.enqueued_at)

    def _start(self, job: Job[Any], rules: int) -> None:
        row, self._spare = self._spare, self._new_row()
        config = KeeperConfig(
            target=self._config.target,
            job=job.id,
            attempt=job.attempt,
            worker=row,
            rules=rules,
            folder=str(self._folder.path),
            lease=self._lease,
            grace=self._config.grace,
            tags=self._config.tags,
            log_level=self._config.log_level or "info",
            log_format=self._config.log_format,
        )
        watched = WatchedProcess(
            job=job.id,
            attempt=job.attempt,
            worker=row,
            renew_until=monotonic() + _START_SECONDS,
        )
        self._renew_at = 0.0
        try:
            process = self._popen(config)
        except (OSError, Refused) as error:
            log.error(  # noqa: TRY400
                "job %s: no process could be started: %s; the job is put back for %g s",
                job.id,
                error,
                RETRY_SECONDS,
            )
            watched.exit_code = Exit.MISSING
            self._processes.ended.append(watched)
            return
        log.info(
            "job %s (attempt %d) runs detached, as process %d", job.id, job.attempt, process.pid
        )
        self._processes.watch(watched, process.wait)

    def _popen(self, config: KeeperConfig) -> subprocess.Popen[bytes]:
        output = self._folder.open_log(config.job)
        try:
            return subprocess.Popen(
                [*start_method().command, *_COMMAND, msgspec.json.encode(config).decode()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _renew(self, now: float) -> None:
        rows = [self._row()]
        for process in self._processes.running.values():
            if now < process.renew_until:
                # Its keeper has written its file: from now on it renews by itself.
                if any(run.worker == process.worker for run in self._folder.runs(process.job)):
                    process.renew_until = 0.0
                else:
                    rows.append(self._row(process.worker))
        self._renew_at = now + min(1.0 if len(rows) > 1 else self._lease, self._lease / 3)
        self._broker.renew(rows)

    def _remove_files(self) -> None:
        """Remove the files of jobs that the store has pruned."""
        running = {process.job for process in self._processes.running.values()}
        for job in list(self._folder.jobs()):
            if (
                job not in running
                and self._broker.get(job) is None
                and self._folder.remove_job(job)
            ):
                log.info("job %s: its log and files are removed, the store has pruned it", job)

    def _new_row(self) -> str:
        return f"{self._host}-detached-{secrets.token_hex(6)}"

    def _row(self, id: str | None = None) -> WorkerRow:
        return WorkerRow(
            id=id or self._spare,
            app=self._app.name,
            tasks=self._app.known_tasks(detached=True) if id is None else {},
            places=self._app.task_places if id is None else {},
            tags=frozenset(self._config.tags),
            queues=self._config.queues if id is None else (),
            host=self._host,
            pid=os.getpid(),
            lease=self._lease,
            started_at=self._started_at,
            penstock=RELEASE,
            code=self._app.code,
        )


def start_launcher(app: App, config: ChildConfig, limit: int, settings: LiveSettings) -> Launcher:
    """The launcher of a supervisor, started."""
    folder = StateFolder(state_folder(app.resolved_url.url))
    folder.make()
    launcher = Launcher(app, config, folder, limit, lambda: settings.capacity.quiet)
    launcher.start()
    return launcher
