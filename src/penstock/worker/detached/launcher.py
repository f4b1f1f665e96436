"""The launcher: starts detached processes, takes back those that others started, buries the dead.

It claims with a spare row. When that brings a job, the row becomes the row of the process that is
started for it, and the launcher makes a new one; no job is ever held by a row that somebody else
renews. It ends no detached process, and none ends with it.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.version import release
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.job import Job, State, put_back
from penstock.worker.detached.after_death import gets_on, spared
from penstock.worker.detached.exit_codes import Exit, said
from penstock.worker.detached.keeper import KeeperConfig
from penstock.worker.detached.processes import end_marked, wait_for_end
from penstock.worker.detached.state_folder import Folder
from penstock.worker.detached.systemd_unit import place_here
from penstock.worker.drain_check import anything_left
from penstock.worker.failures import Failures, of_job

if TYPE_CHECKING:
    from penstock.app.app import App

_COMMAND = (sys.executable, "-m", "penstock.worker", "keep")
_START_SECONDS = 60.0  # for a process to come so far that it renews its row by itself
_AGAIN_SECONDS = 5.0  # after a start that did not come to anything
_DEAF_LONGEST = 1.0
_COUNT_SECONDS = 0.1
_FORGET_SECONDS = 3600.0
_LOG_EVERY = 60.0
_MOST_EVENTS = 1000  # looked at: an attempt that has left more than these got on

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Watched(msgspec.Struct, kw_only=True):
    """A detached process that runs here, started or adopted."""

    job: str
    attempt: int
    worker: str
    claimed: Job[Any] | None = None  # by this launcher; None: adopted
    renew_until: float = 0.0  # it has not said yet that it does so itself
    code: int | None = None


class Launcher(threading.Thread):
    """Runs detached jobs beside a supervisor, at most `limit` at a time on this worker."""

    def __init__(
        self,
        app: App,
        target: str,
        folder: Folder,
        *,
        limit: int,
        lease: float,
        grace: float,
        queues: Collection[str] | None = None,
        tags: Collection[str] = (),
        drain: bool = False,
        log_level: str | None = None,
        log_format: str = "text",
    ) -> None:
        super().__init__(name="penstock-launcher", daemon=True)
        self.drained = False
        self.watched: dict[str, Watched] = {}  # by the id of its row
        self._app = app
        self._broker = app.broker
        self._target = target
        self._folder = folder
        self._limit = limit
        self._lease = lease
        self._grace = grace
        self._queues = None if queues is None else tuple(sorted(queues))
        self._tags = frozenset(tags)
        self._drain = drain
        self._log_level = log_level
        self._log_format = log_format
        self._failures = Failures(app)
        self._host = socket.gethostname()
        self._started_at = self._broker.clock.now()
        self._over = False
        self._gone: queue.SimpleQueue[Watched | None] = queue.SimpleQueue()
        self._graves: list[Watched] = []
        self._known: set[str] = set()  # rows whose files were looked at
        self._spare = self._new_row()
        self._doubtful = False  # a claim whose answer was lost may hold a job
        self._renew_at = self._look_at = self._claim_at = self._deaf_until = 0.0
        self._forget_at = self._count_at = 0.0
        self._futile = 0
        self._said_at = -_LOG_EVERY

    def stop(self) -> None:
        """Start nothing more. What runs goes on."""
        self._over = True
        self._gone.put(None)
        self._broker.wake()

    def run(self) -> None:
        log.info("detached jobs: %s", place_here().survives)
        while not self._over:
            try:
                self._turn()
            except Exception as error:
                self._say(f"the store does not answer: {type(error).__name__}: {error}")
                self._rest(1.0)
        with suppress(Exception):  # its lease would end by itself
            self._broker.recover(dead=self._spare, started=())

    def _turn(self) -> None:
        self._collect(0.0)
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + self._lease
            self._adopt()
        if self._graves:
            self._bury()
        if now >= self._renew_at:
            self._renew(now)
        if now >= self._forget_at:
            self._forget_at = now + _FORGET_SECONDS
            self._forget()
        if len(self.watched) >= self._limit:
            self._rest(self._until(now))
        elif now >= self._claim_at and self._has_room() and self._claim():
            self._futile = 0
        else:
            self._wait(now)

    def _until(self, now: float) -> float:
        due = [self._renew_at, self._look_at]
        if self._graves:
            due.append(now + 1.0)
        return max(0.0, min(due) - now)

    def _wait(self, now: float) -> None:
        """Listen for work, as long as nothing else is due."""
        if self._drain and not self.watched and not self._graves:
            if now >= self._count_at:
                self._count_at = now + _COUNT_SECONDS
                self.drained = not anything_left(self._broker, self._row())
            if self.drained:
                self._rest(_COUNT_SECONDS)
                return
        if now < self._deaf_until:
            self._rest(min(self._until(now), self._deaf_until - now))
            return
        timeout = min(self._until(now), max(0.0, self._claim_at - now))
        if self._drain:
            timeout = min(timeout, _COUNT_SECONDS)
        if self._broker.wait(self._queues, timeout):
            # Most hints are of ordinary jobs: a task of hours can start a moment later.
            self._futile += 1
            self._deaf_until = monotonic() + min(_DEAF_LONGEST, 0.01 * 2 ** min(self._futile, 7))
            self._claim_at = self._deaf_until

    def _rest(self, seconds: float) -> None:
        if not self._over:
            self._collect(seconds)

    def _collect(self, patience: float) -> None:
        """Take over what has ended; wait so long for the first."""
        with suppress(queue.Empty):
            gone = self._gone.get(timeout=patience) if patience > 0 else self._gone.get_nowait()
            while True:
                if gone is not None and self.watched.pop(gone.worker, None) is not None:
                    self._graves.append(gone)
                    self._claim_at = self._deaf_until = 0.0  # there is room, and perhaps a retry
                gone = self._gone.get_nowait()

    # Start

    def _has_room(self) -> bool:
        try:
            self._folder.try_out()
        except Refused as error:
            self._claim_at = monotonic() + _AGAIN_SECONDS
            self._say(str(error))
            return False
        return True

    def _claim(self) -> bool:
        self._claim_at = monotonic() + self._broker.traits.poll_seconds()
        rules = self._broker.traits.rules_version()  # before the claim: a change in between is seen
        if self._doubtful:
            self._broker.renew([self._row()], holding=())
            self._doubtful = False
        self._doubtful = True
        jobs = self._broker.claim([Wanted(self._row(), limit=1, queues=self._queues)]).jobs[0]
        self._doubtful = False
        for job in jobs:
            if job.lapses and self._gets_on(job):
                log.info("job %s got on before its process was lost: none of that counts", job.id)
                self._broker.settle([(job, spared(job))])
            else:
                self._start(job, rules)
        if jobs:
            self._claim_at = 0.0
        return bool(jobs)

    def _gets_on(self, job: Job[Any]) -> bool:
        history = self._broker.history(after=None, limit=_MOST_EVENTS, job=job.id)
        return gets_on(self._broker.notes(job.id), history, job.enqueued_at)

    def _start(self, job: Job[Any], rules: int) -> None:
        row, self._spare = self._spare, self._new_row()
        config = KeeperConfig(
            target=self._target,
            job=job.id,
            attempt=job.attempt,
            worker=row,
            rules=rules,
            folder=str(self._folder.path),
            lease=self._lease,
            grace=self._grace,
            tags=tuple(sorted(self._tags)),
            log_level=self._log_level or "info",
            log_format=self._log_format,
        )
        until = monotonic() + _START_SECONDS
        watched = Watched(
            job=job.id, attempt=job.attempt, worker=row, claimed=job, renew_until=until
        )
        self.watched[row] = watched
        self._renew_at = 0.0
        try:
            process = self._popen(config)
        except (OSError, Refused) as error:
            log.error("job %s: no process could be started: %s", job.id, error)  # noqa: TRY400
            watched.code = Exit.MISSING
            self._gone.put(watched)
            return
        log.info("job %s runs detached as process %d", job.id, process.pid)
        self._watch(watched, process.wait)

    def _popen(self, config: KeeperConfig) -> subprocess.Popen[bytes]:
        output = self._folder.open_log(config.job)
        try:
            told = msgspec.json.encode(config).decode()
            return subprocess.Popen(
                [*place_here().command, *_COMMAND, told],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _watch(self, watched: Watched, wait: Callable[[], int | None]) -> None:
        def until_it_ends() -> None:
            watched.code = wait()
            self._gone.put(watched)
            self._broker.wake()

        threading.Thread(target=until_it_ends, name="penstock-watch", daemon=True).start()

    # Look after

    def _adopt(self) -> None:
        """Take back what runs here and was started by a worker that is gone, or is another."""
        for run in self._folder.runs():
            if run.worker in self.watched:
                self.watched[run.worker].renew_until = 0.0  # it renews by itself now
                continue
            if run.worker in self._known or not run.here:
                continue
            watched = Watched(job=run.job, attempt=run.attempt, worker=run.worker)
            if run.alive:
                log.info("job %s is adopted: process %d runs it", run.job, run.pid)
                self.watched[run.worker] = watched
                self._watch(watched, lambda run=run: wait_for_end(run.pid, run.started))
            else:
                self._graves.append(watched)
            self._known.add(run.worker)

    def _bury(self) -> None:
        """See to the jobs of processes that are gone."""
        while self._graves:
            gone = self._graves[0]
            if ended := end_marked(gone.job, gone.attempt):
                log.warning("job %s: %d processes it left behind were ended", gone.job, ended)
            self._hand_on(gone)
            self._known.add(gone.worker)
            for run in self._folder.runs(gone.job):
                if run.worker == gone.worker:
                    self._folder.ended(run)
            self._graves.pop(0)

    def _hand_on(self, gone: Watched) -> None:
        job = self._broker.get(gone.job)
        held = (
            job is not None
            and job.state is State.RUNNING
            and job.worker == gone.worker
            and job.attempt == gone.attempt
        )
        if gone.claimed is not None:
            level = logging.WARNING if gone.code == Exit.MISSING else logging.INFO
            log.log(level, "job %s: its process has ended: %s", gone.job, said(gone.code))
        if job is not None and job.attempt == gone.attempt and (failed := of_job(job)) is not None:
            self._failures.tell(job, failed)
        if job is not None and held and gone.code in {Exit.LOCKED, Exit.MISSING}:
            locked = gone.code == Exit.LOCKED
            later = self._app.clock.now() + (self._lease / 3 if locked else _AGAIN_SECONDS)
            self._broker.settle([(job, put_back("locked" if locked else "no start", later))])
            held = False
        self._broker.recover(dead=gone.worker, started=[gone.job] if held else ())
        if held:
            log.warning("job %s: its process is gone, and it is ready again", gone.job)

    def _renew(self, now: float) -> None:
        rows = [self._row()]
        for watched in self.watched.values():
            if now < watched.renew_until:
                if self._has_begun(watched):
                    watched.renew_until = 0.0
                else:
                    rows.append(self._row(watched.worker))
        self._renew_at = now + min(1.0 if len(rows) > 1 else self._lease, self._lease / 3)
        self._broker.renew(rows)

    def _has_begun(self, watched: Watched) -> bool:
        return any(run.worker == watched.worker for run in self._folder.runs(watched.job))

    def _forget(self) -> None:
        """Remove the files of jobs that the store has forgotten."""
        running = {watched.job for watched in self.watched.values()}
        for job in list(self._folder.jobs()):
            if job not in running and self._broker.get(job) is None and self._folder.forget(job):
                log.info("job %s: its files are removed", job)

    def _new_row(self) -> str:
        return f"{self._host}-detached-{secrets.token_hex(6)}"

    def _row(self, id: str | None = None) -> WorkerRow:
        return WorkerRow(
            id=id or self._spare,
            app=self._app.name,
            tasks=self._app.known_tasks(detached=True) if id is None else {},
            tags=self._tags,
            queues=self._queues if id is None else (),
            host=self._host,
            pid=os.getpid(),
            lease=self._lease,
            started_at=self._started_at,
            penstock=release(),
        )

    def _say(self, trouble: str) -> None:
        if monotonic() - self._said_at >= _LOG_EVERY:
            self._said_at = monotonic()
            log.error("detached jobs: %s", trouble)
