"""The supervisor: starts children, keeps their leases, and answers for them when they cannot.

It runs no job, so nothing that a job does can keep it from its heartbeat. Children are fresh
processes, never forks. What a dead or frozen child was doing is read from the slots: only jobs that
had begun count a lapse, and only a job whose time was up is settled as timed out.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.locate import load_app
from penstock.app.version import release
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS, WorkerRow
from penstock.errors import Refused
from penstock.job import State
from penstock.run.attempt import fire, timed_out
from penstock.worker.child import ChildConfig
from penstock.worker.child_process import Child, ending
from penstock.worker.failures import Failures
from penstock.worker.health import RED_AFTER, Answer, serve
from penstock.worker.memory_use import memory_of
from penstock.worker.running_slots import Flag, HeldJob

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.worker.detached.launcher import Launcher

OK, ERROR, CANNOT_START = 0, 1, 70
DETACHED_PROCESSES = 2

_LOOK_SECONDS = 0.1
_MEMORY_SECONDS = 1.0
_STILL_SECONDS = 1.0  # a pulse that stands still for so long ...
_OVERDUE_SECONDS = 0.5  # ... while a job is so long over its time: the interpreter is held
_LEAVE_SECONDS = 10.0  # beyond the grace, for a child to hand back the rest and go
_YOUNG_SECONDS = 5.0
_PAUSE_FIRST, _PAUSE_LONGEST = 0.1, 5.0
_STILLBORN = 5  # children in a row that died before they were ready
_LOG_EVERY = 60.0
_AGAIN_SECONDS = 1.0  # after a renewal that failed
_LAUNCHER_SECONDS = 2.0  # for it to take back its row, which would lapse by itself

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Supervisor:
    """`penstock worker`: `processes` children that run the target's jobs.

    `run` gives the exit code: 0 stopped or drained, 70 no child comes up. `max_memory` is in bytes,
    per child: one above it drains and is replaced. `health_port` serves /live and /ready on
    loopback. `detached` is how many detached jobs run here at a time, if the app has such tasks.
    """

    def __init__(
        self,
        target: str,
        *,
        processes: int | None = None,
        threads: int = 10,
        async_slots: int = 100,
        queues: Collection[str] | None = None,
        tags: Collection[str] = (),
        drain: bool = False,
        lease: float = LEASE_SECONDS,
        grace: float = 25.0,
        max_memory: int | None = None,
        health_port: int | None = None,
        red_after: float = RED_AFTER,
        retention: float | None = RETENTION_SECONDS,
        log_level: str | None = None,
        log_format: str = "text",
        detached: int = DETACHED_PROCESSES,
    ) -> None:
        self.target = target
        self.app: App = load_app(target)
        self.processes = processes or os.cpu_count() or 1
        if self.processes < 1 or threads < 1 or async_slots < 1:
            raise Refused(
                f"a worker needs hands: processes={processes}, threads={threads}, "
                f"async_slots={async_slots}"
            )
        self.children: list[Child] = []
        self.health_port = health_port
        self._config = ChildConfig(
            target=target,
            id="",
            slots=-1,
            control=-1,
            threads=threads,
            async_slots=async_slots,
            queues=None if queues is None else tuple(sorted(queues)),
            tags=tuple(sorted(tags)),
            lease=lease,
            grace=grace,
            drain=drain,
            retention=retention,
            log_level=log_level,
            log_format=log_format,
            detached=bool(detached and self.app.known_tasks(detached=True)),
        )
        self._detached = detached
        self._launcher: Launcher | None = None
        self._max_memory = max_memory
        self._red_after = red_after
        self._stops = 0
        self._told = 0
        self._told_until = 0.0
        self._wanted = self.processes
        self._start_at = 0.0
        self._pause = _PAUSE_FIRST
        self._stillborn = 0
        self._graves: list[tuple[str, list[str]]] = []  # dead children the store has not heard of
        self._looked_at = monotonic()
        self._memory_at = 0.0
        self._grave_at = 0.0
        self._said_at = -_LOG_EVERY
        self._over = threading.Event()
        self._buried = 0  # outcomes that the store took of children which are gone

    @property
    def settled(self) -> int:
        """Outcomes that the store took so far, of all its children together."""
        return self._buried + sum(child.slots.vitals.settled for child in list(self.children))

    @property
    def draining(self) -> bool:
        return self._stops > 0

    def stop(self, *, now: bool = False) -> None:
        """Have the children drain and end; a second time, or `now`: hand back at once.

        Safe in a signal handler.
        """
        self._stops = max(2 if now else 1, self._stops + 1)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stop()

    def run(self) -> int:
        """Supervise until stopped or drained; the exit code. A store that does not open raises."""
        self.app.broker.traits.rules_version()
        beat = threading.Thread(target=self._keep_leases, name="penstock-heartbeat", daemon=True)
        before: dict[signal.Signals, Any] = {}
        with ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    before[number] = signal.signal(number, self._signalled)
            if self.health_port is not None:
                pages = serve(self.health_port, self._live, self._ready)
                self.health_port = stack.enter_context(pages)
            beat.start()
            if self._config.detached:
                self._launcher = self._start_launcher()
            try:
                return self._supervise()
            finally:
                self._over.set()
                if self._launcher is not None:
                    self._launcher.stop()
                    self._launcher.join(_LAUNCHER_SECONDS)
                for child in self.children:
                    child.kill()
                    child.close()
                beat.join(1.0)
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _supervise(self) -> int:
        while True:
            now = monotonic()
            self._pass_on_stop(now)
            self._start_missing(now)
            if now - self._looked_at > 5 * _LOOK_SECONDS:
                for child in self.children:  # we were stopped ourselves; look before judging
                    child.seen_at = now
            self._looked_at = now
            for child in list(self.children):
                self._look(child, now)
            if self._graves and now >= self._grave_at:
                self._grave_at = now + 1.0
                self._tell_store()
            if not self.children and not self._graves and (self.draining or self._is_drained()):
                return OK
            if not self.children and self.draining and now > self._told_until:
                return ERROR  # the store does not answer; leases will run out by themselves
            if self._stillborn >= _STILLBORN and not any(child.ready for child in self.children):
                log.error("no child comes up: %d died before they were ready", self._stillborn)
                return CANNOT_START
            time.sleep(_LOOK_SECONDS)

    def _start_launcher(self) -> Launcher:
        from penstock.worker.detached.launcher import Launcher
        from penstock.worker.detached.state_folder import Folder, state_folder

        config = self._config
        folder = Folder(state_folder(self.app.resolved_url.url))
        folder.make()
        launcher = Launcher(
            self.app,
            self.target,
            folder,
            limit=self._detached,
            lease=config.lease,
            grace=config.grace,
            queues=config.queues,
            tags=config.tags,
            drain=config.drain,
            log_level=config.log_level,
            log_format=config.log_format,
        )
        launcher.start()
        return launcher

    def _is_drained(self) -> bool:
        return self._wanted <= 0 and (self._launcher is None or self._launcher.drained)

    def _pass_on_stop(self, now: float) -> None:
        if self._stops <= self._told:
            return
        if self._launcher is not None:
            self._launcher.stop()
        word = "now" if self._stops > 1 else "drain"
        if self._told == 0:
            log.info("stopping: %d children drain", len(self.children))
        self._told = self._stops
        grace = 0.0 if self._stops > 1 else self._config.grace
        self._told_until = now + grace + _LEAVE_SECONDS
        for child in self.children:
            child.tell(word)
            child.leave_until = self._told_until

    def _start_missing(self, now: float) -> None:
        missing = self._wanted - sum(not child.retired for child in self.children)
        if self.draining or now < self._start_at:
            return
        for _ in range(missing):
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
            config = msgspec.structs.replace(self._config, id=name)
            try:
                child = Child(config, self.app.broker.clock.now())
            except OSError as error:
                log.error("no child could be started: %s", error)  # noqa: TRY400
                self._start_at = now + _PAUSE_LONGEST
                return
            self.children.append(child)
            log.info("child %d started as %s", child.pid, child.id)

    def _look(self, child: Child, now: float) -> None:
        code = child.process.poll()
        if code is not None:
            self._bury(child, code, now)
            return
        flags = child.slots.vitals.flags
        if flags & Flag.READY:
            self._stillborn = 0
        if flags & Flag.RETIRING:
            self._retire(child, now)
        if child.still_for(now) >= _STILL_SECONDS:
            overdue = [
                held
                for held in child.slots.held()
                if held.deadline and now - held.deadline >= _OVERDUE_SECONDS
            ]
            if overdue:
                self._end_frozen(child, overdue)
                return
        if child.leave_until is not None and now >= child.leave_until:
            log.error("child %d did not leave in time and is killed", child.pid)
            child.dismissed = True
            child.kill()
        if self._max_memory is not None and now >= self._memory_at:
            self._weigh(now)

    def _weigh(self, now: float) -> None:
        self._memory_at = now + _MEMORY_SECONDS
        for child in self.children:
            memory = memory_of(child.pid) or child.slots.vitals.memory
            if memory > (self._max_memory or 0) and not child.retired and not self.draining:
                log.warning(
                    "child %d holds %d MB, more than %d: it drains and is replaced",
                    child.pid,
                    memory >> 20,
                    (self._max_memory or 0) >> 20,
                )
                child.tell("retire")
                self._retire(child, now)

    def _retire(self, child: Child, now: float) -> None:
        if not child.retired:
            child.retired = True
            child.leave_until = now + self._config.grace + _LEAVE_SECONDS

    def _end_frozen(self, child: Child, overdue: list[HeldJob]) -> None:
        """A job holds the interpreter beyond its time: only the end of the process ends it."""
        log.error(
            "child %d: job %s holds the interpreter beyond its timeout; the process is killed",
            child.pid,
            ", ".join(held.id for held in overdue),
        )
        child.dismissed = True
        child.kill()
        child.process.wait()
        for held in overdue:
            try:
                self._settle_timed_out(held)
            except Exception as error:
                self._say_lost(error)

    def _settle_timed_out(self, held: HeldJob) -> None:
        broker = self.app.broker
        job = broker.get(held.id)
        task = None if job is None else self.app.task_named(job.task)
        if job is None or task is None or job.state is not State.RUNNING:
            return
        job = msgspec.structs.replace(job, attempt=held.attempt)
        now = broker.clock.now()
        ran = monotonic() - held.deadline + (task.timeout_of(job) or 0.0)
        outcome = timed_out(task, job, now, now - ran, "it held the interpreter")
        broker.settle([(job, outcome)])
        Failures(self.app).tell(job, outcome)
        fire(self.app, "timed_out", job, outcome)

    def _bury(self, child: Child, code: int, now: float) -> None:
        self.children.remove(child)
        held, vitals = child.slots.held(), child.slots.vitals
        flags = vitals.flags
        self._buried += vitals.settled
        child.close()
        # One that nobody sent away, and that did not say so, was ended by a job: os._exit(0).
        leaving = self.draining or child.retired or flags & (Flag.RETIRING | Flag.DRAINED)
        clean = code == 0 and bool(leaving)
        if clean and flags & Flag.DRAINED:
            self._wanted -= 1
        # What we ended, and what a child left behind that ended itself, has not failed; but an
        # at-most-once job that had begun must not begin again.
        begun = [job for job in held if job.at_most_once or not (clean or child.dismissed)]
        self._graves.append((child.id, [job.id for job in begun]))
        self._tell_store()
        if clean:
            log.info("child %d ended", child.pid)
        else:
            log.warning("child %d ended: %s; it ran %s", child.pid, ending(code), _named(held))
        if flags & Flag.READY:
            self._stillborn = 0
        elif not self.draining:
            self._stillborn += 1
        if clean or child.dismissed or now - child.began > _YOUNG_SECONDS:
            self._pause = _PAUSE_FIRST
        else:
            self._start_at = now + self._pause
            self._pause = min(_PAUSE_LONGEST, self._pause * 2)

    def _tell_store(self) -> None:
        while self._graves:
            dead, begun = self._graves[0]
            try:
                moved = self.app.broker.recover(dead=dead, started=begun)
            except Exception as error:
                self._say_lost(error)
                return
            self._graves.pop(0)
            if moved:
                log.info("%d jobs of %s are ready again", moved, dead)

    def _keep_leases(self) -> None:
        every = pause = self._config.lease / 3
        while not self._over.wait(pause):
            try:
                if rows := [self._row(child) for child in list(self.children)]:
                    self.app.broker.renew(rows)
                pause = every
            except Exception as error:
                # A line that went dead has cost a third of the lease already.
                pause = min(every, _AGAIN_SECONDS)
                self._say_lost(error)

    def _row(self, child: Child) -> WorkerRow:
        vitals = child.slots.vitals
        return WorkerRow(
            id=child.id,
            app=self.app.name,
            tasks=self.app.known_tasks(detached=False),
            tags=frozenset(self._config.tags),
            queues=self._config.queues,
            host=socket.gethostname(),
            pid=child.pid,
            lease=self._config.lease,
            started_at=child.started_at,
            penstock=release(),
            claimed_at=vitals.claimed_at or None,
            running=vitals.running,
            stale=vitals.stale,
        )

    def _say_lost(self, error: Exception) -> None:
        now = monotonic()
        if now - self._said_at >= _LOG_EVERY:
            self._said_at = now
            log.error("the store does not answer: %s: %s", type(error).__name__, error)

    def _live(self) -> Answer:
        return monotonic() - self._looked_at < self._red_after, self._state()

    def _ready(self) -> Answer:
        now = monotonic()
        answered = max(
            (child.slots.vitals.answered_at for child in list(self.children) if child.ready),
            default=0.0,
        )
        return not self.draining and now - answered < self._red_after, self._state()

    def _state(self) -> dict[str, Any]:
        children = [
            {"pid": child.pid, "id": child.id, **child.slots.vitals._asdict()}
            for child in list(self.children)
        ]
        return {"draining": self.draining, "children": children}


def _named(held: list[HeldJob], most: int = 5) -> str:
    """The jobs of a child that is gone, for the log."""
    ids = ", ".join(job.id for job in held[:most])
    more = f" and {len(held) - most} more" if len(held) > most else ""
    return f"{len(held)} jobs{ids and ': '}{ids}{more}"
