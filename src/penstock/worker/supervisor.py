"""The supervisor: starts and restarts children, renews their leases, recovers jobs of dead ones.

It runs no job, so no job can keep it from renewing leases. Children are fresh processes, never
forks. What a dead or frozen child was running is read from its slots (`running_slots.py`): only
jobs that had started count a lapse, and only a job past its deadline is settled as timed out.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.environment import open_to_run
from penstock.app.locate import load_app
from penstock.app.store_retry import open_when_reachable
from penstock.broker.call_deadline import CallDeadline
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import WorkerRow
from penstock.errors import Refused
from penstock.worker.capacity import Capacity, LiveSettings, Queues
from penstock.worker.child import MISSING_RIGHT, ChildConfig
from penstock.worker.child_process import (
    FROZEN_SECONDS,
    Child,
    children_state,
    last_answer,
    row_of,
    rules_heard,
)
from penstock.worker.dead_workers import DeadWorkers
from penstock.worker.frozen_child import settle_timed_out
from penstock.worker.health import RED_AFTER, Answer
from penstock.worker.job_process import describe_exit
from penstock.worker.lease_renewal import LeaseRenewal
from penstock.worker.memory_use import memory_of
from penstock.worker.outage_log import OutageLog
from penstock.worker.running_slots import Flag, HeldJob, job_list
from penstock.worker.slots_files import SlotsFiles

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.worker.detached.launcher import Launcher

OK, ERROR, REFUSED, CANNOT_START = 0, 1, 2, 70
DETACHED_PROCESSES = 2

_CHECK_SECONDS = 0.1
_MEMORY_SECONDS = 1.0
_OVERDUE_SECONDS = 0.5  # no pulse, and a job this far past its deadline: it holds the interpreter
SILENCE_SECONDS = 60.0  # more than the longest call of a worker to its store takes
LEAVE_SECONDS = 10.0  # beyond the grace, for a child to put back the rest and exit
REPORT_SECONDS = 2.0  # beyond that, to tell the store of children that were killed
_CUT_SECONDS = 1.0  # to a call under way when it is stopped: the children must hear of it
_QUICK_DEATH_SECONDS = 5.0  # a child that dies sooner is restarted after a growing pause
_PAUSE_FIRST, _PAUSE_LONGEST = 0.1, 5.0
_MOST_FAILED_STARTS = 5  # children in a row that died before they were ready
_LAUNCHER_SECONDS = 2.0  # for it to give back its row, which would lapse by itself

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class Supervisor:
    """`penstock worker`: `processes` children that run the target's jobs.

    `run` returns the exit code: 0 stopped or drained, 1 the store was away at the end, 2 its login
    lacks a right, 70 no child could start. A store that is away at the start is waited for. Above
    `max_memory` bytes a child drains and is replaced. `health_port` serves /live and /ready here.
    `by_queue`: so many children for each of these queues, in place of `processes` and `queues`.
    Under `name` operators change numbers while it runs (`capacity.py`).
    A child that has not reached the store for `silence` seconds, while the supervisor does, is
    replaced. `detached` is how many detached jobs run here at a time, if the app has such tasks.
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
        lease: float | None = None,
        grace: float = 25.0,
        max_memory: int | None = None,
        health_port: int | None = None,
        red_after: float = RED_AFTER,
        silence: float = SILENCE_SECONDS,
        retention: float | None = RETENTION_SECONDS,
        log_level: str | None = None,
        log_format: str = "text",
        detached: int = DETACHED_PROCESSES,
        name: str | None = None,
        by_queue: Mapping[str, int] | None = None,
    ) -> None:
        self.target = target
        self.app: App = load_app(target)
        numbers: dict[Queues, int] = {
            (queue,): number for queue, number in (by_queue or {}).items()
        }
        served = None if queues is None else tuple(sorted(queues))
        if not numbers:
            numbers = {served: processes or os.cpu_count() or 1}
        self.processes = sum(numbers.values())
        if self.processes < 1 or threads < 1 or async_slots < 1:
            raise Refused(
                f"a worker needs at least one of each: {processes=}, {threads=}, {async_slots=}"
            )
        self.children: list[Child] = []
        self.health_port = health_port
        self._config = ChildConfig(
            target=target,
            id="",
            slots=-1,
            control=-1,
            words=-1,
            threads=threads,
            async_slots=async_slots,
            queues=tuple(sorted(by_queue)) if by_queue else served,
            tags=tuple(sorted(tags)),
            lease=lease,
            grace=grace,
            drain=drain,
            retention=retention,
            log_level=log_level,
            log_format=log_format,
            detached=bool(detached and self.app.known_tasks(detached=True)),
            group=name or f"{socket.gethostname()}-{os.getpid()}",
        )
        self._settings = LiveSettings(
            self._config.group, Capacity(threads, async_slots), numbers, named=bool(name)
        )
        self._detached = detached
        self._launcher: Launcher | None = None
        self._max_memory = max_memory
        self._red_after = red_after
        self._silence = silence
        self._renewal: LeaseRenewal | None = None
        self._stops = 0  # how often `stop` was called
        self._stops_passed_on = 0  # of those, how many the children know of
        self._leave_until = 0.0
        self._deadline = CallDeadline()  # of its calls to the store, once it stops
        self._start_at = 0.0
        self._pause = _PAUSE_FIRST
        self._failed_starts = 0
        self._end_code = OK
        self._waits_for: str | None = None  # what the store has not answered since the start
        self._checked_at = monotonic()
        self._memory_at = 0.0
        self._outage = OutageLog("trying again; children keep their jobs until their leases end")
        self._slots_files = SlotsFiles(self.app.resolved_url.url)
        self._dead = DeadWorkers(self.app, self._slots_files, self._outage.log)
        self._settled_by_ended = 0  # outcomes stored by children that have ended

    @property
    def settled(self) -> int:
        """Outcomes stored so far, by all children together."""
        return self._settled_by_ended + sum(
            child.slots.vitals.settled for child in list(self.children)
        )

    @property
    def draining(self) -> bool:
        return self._stops > 0

    def stop(self, *, now: bool = False) -> None:
        """Have the children drain and exit; a second call, or `now`: put back what runs at once.

        Safe in a signal handler.
        """
        self._deadline.at = min(self._deadline.at, monotonic() + _CUT_SECONDS)
        self._stops = max(2 if now else 1, self._stops + 1)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.stop()

    def run(self, opened: Callable[[], object] = lambda: None) -> int:
        """Supervise until stopped or drained; the exit code. `opened` is called before work begins.

        A store that is away is waited for; a wrong URL or password, or another schema, raises.
        """
        with self._deadline.within(), ExitStack() as stack:
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            if self.health_port is not None:
                from penstock.worker.health_server import serve

                pages = serve(self.health_port, self._live, self._ready)
                self.health_port = stack.enter_context(pages)
            if not self._open_store():
                return OK
            opened()
            return self._run()

    def _run(self) -> int:
        broker = self.app.broker
        renewal = LeaseRenewal(broker, self._lease, self._rows, self._outage.log, self._deadline)
        self._renewal = renewal
        renewal.start()
        if self._config.detached:
            self._launcher = self._start_launcher()
        try:
            return self._supervise()
        finally:
            renewal.stop()
            if self._launcher is not None:
                self._launcher.stop()
                self._launcher.join(_LAUNCHER_SECONDS)
            for child in self.children:
                child.kill()
                child.close()
            renewal.join(1.0)

    def _open_store(self) -> bool:
        """Open the store, also after an outage; False if it was stopped meanwhile."""
        outage = OutageLog("no job runs here until it does")

        def failed(error: Exception) -> None:
            self._waits_for = str(error)
            outage.log(error)

        def pause(seconds: float) -> bool:
            until = monotonic() + seconds
            while not self.draining and (left := until - monotonic()) > 0:
                time.sleep(min(left, _CHECK_SECONDS))
            return self.draining

        if not open_when_reachable(lambda: open_to_run(self.app), failed, pause):
            return False
        if self._waits_for is not None:
            log.warning("the store answers: work begins")
        self._waits_for = None
        self._checked_at = monotonic()
        self._settings.begin(self.app)
        return True

    def _supervise(self) -> int:
        while True:
            now = monotonic()
            if self._settings.apply():
                self.stop()
            self._pass_on_stop(now)
            self._start_missing_children(now)
            self._change_children(now)
            if now - self._checked_at > 5 * _CHECK_SECONDS:
                # This process was suspended: its children's pulses were not looked at meanwhile.
                for child in self.children:
                    child.pulse_at = child.pulsing_since = now
            self._checked_at = now
            for child in list(self.children):
                self._check_child(child, now)
            self._dead.find([child.id for child in self.children], now)
            self._dead.report(now)
            ended = not self.children and (self._end_code or not self._dead.untold)
            launched = self._launcher is None or self._launcher.drained
            if ended and (self.draining or (launched and self._settings.all_drained)):
                return self._end_code
            if not self.children and self.draining and now > self._leave_until:
                log.error(
                    "exiting while the store is away: the jobs of %d children could not be put "
                    "back and are recovered when their leases end",
                    self._dead.untold,
                )
                return ERROR
            if self._failed_starts >= _MOST_FAILED_STARTS and not any(
                child.ready for child in self.children
            ):
                log.error(
                    "%d children in a row died before they were ready; this worker exits with code "
                    "%d, the lines above say why",
                    self._failed_starts,
                    CANNOT_START,
                )
                return CANNOT_START
            time.sleep(_CHECK_SECONDS)

    def _start_launcher(self) -> Launcher:
        from penstock.worker.detached.launcher import start_launcher

        return start_launcher(self.app, self._config, self._detached, self._settings)

    def _pass_on_stop(self, now: float) -> None:
        if self._stops <= self._stops_passed_on:
            return
        if self._launcher is not None:
            self._launcher.stop()
        at_once = self._stops > 1
        grace = 0.0 if at_once else self._config.grace
        if at_once:
            log.info("stopping at once: jobs that run are interrupted and put back")
        else:
            log.info(
                "stopping: no new jobs; what runs has %g s to finish, the rest is put back; "
                "a second signal stops at once",
                grace,
            )
        self._stops_passed_on = self._stops
        self._leave_until = now + grace + LEAVE_SECONDS
        self._deadline.at = self._leave_until + REPORT_SECONDS
        for child in self.children:
            child.send("now" if at_once else "drain")
            child.leave_until = self._leave_until

    def _start_missing_children(self, now: float) -> None:
        if self.draining or now < self._start_at:
            return
        capacity = msgspec.structs.asdict(self._settings.capacity)
        for queues in self._settings.missing(self._serving()):
            name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
            config = msgspec.structs.replace(self._config, id=name, queues=queues, **capacity)
            try:
                slots = self._slots_files.make(name, config.threads + config.async_slots)
                child = Child(config, slots, self.app.broker.clock.now())
            except OSError as error:
                self._slots_files.remove(name)
                log.error(  # noqa: TRY400
                    "no child could be started: %s; tried again in %g s", error, _PAUSE_LONGEST
                )
                self._start_at = now + _PAUSE_LONGEST
                return
            self.children.append(child)
            log.info("child %d started, as worker %s", child.pid, child.id)

    def _serving(self) -> list[Queues]:
        return [child.queues for child in self.children if not child.retired]

    def _change_children(self, now: float) -> None:
        """Tell the children how much to run, and have those that are too many end."""
        surplus = self._settings.surplus(self._serving())
        for child in reversed(self.children):
            if child.retired or self.draining:
                continue
            if surplus[child.queues] > 0 and child.ready:
                surplus[child.queues] -= 1
                child.send("retire")
                self._retire(child, now)
            child.change(self._settings.capacity)

    def _check_child(self, child: Child, now: float) -> None:
        code = child.process.poll()
        if code is not None:
            self._child_ended(child, code, now)
            return
        flags = child.slots.vitals.flags
        if flags & Flag.READY:
            self._failed_starts = 0
        if flags & Flag.RETIRING:
            self._retire(child, now)
        if child.seconds_without_pulse(now) >= FROZEN_SECONDS:
            overdue = [
                held
                for held in child.slots.held()
                if held.deadline and now - held.deadline >= _OVERDUE_SECONDS
            ]
            if overdue:
                self._kill_frozen(child, overdue)
                return
        elif child.is_cut_off(now, self._renewal and self._renewal.reaching_since, self._silence):
            log.error(
                "child %d has not reached the store for %g s, though this process reaches it: it "
                "is killed and replaced, and the jobs it runs count a lapse",
                child.pid,
                now - child.slots.vitals.reached_at,
            )
            child.killed_because = "it could not reach the store any more, and was killed"
            child.kill()
            return
        if child.leave_until is not None and now >= child.leave_until:
            log.error(
                "child %d did not exit within its grace and is killed; what it ran is put back",
                child.pid,
            )
            child.killed_by_us = True
            child.kill()
        if self._max_memory is not None and now >= self._memory_at:
            self._check_memory(now)

    def _check_memory(self, now: float) -> None:
        self._memory_at = now + _MEMORY_SECONDS
        for child in self.children:
            memory = memory_of(child.pid) or child.slots.vitals.memory
            if memory > (self._max_memory or 0) and not child.retired and not self.draining:
                log.warning(
                    "child %d uses %d MB, more than --max-memory %d MB: it finishes what it runs, "
                    "another takes its place",
                    child.pid,
                    memory >> 20,
                    (self._max_memory or 0) >> 20,
                )
                child.send("retire")
                self._retire(child, now)

    def _retire(self, child: Child, now: float) -> None:
        if not child.retired:
            child.retired = True
            child.leave_until = now + self._config.grace + LEAVE_SECONDS

    def _kill_frozen(self, child: Child, overdue: list[HeldJob]) -> None:
        """A job past its timeout holds the interpreter: only killing the process ends it."""
        log.error(
            "child %d: job %s is past its timeout and holds the interpreter; the child is killed "
            "and replaced, its other jobs are put back",
            child.pid,
            ", ".join(held.id for held in overdue),
        )
        child.killed_by_us = True
        child.kill()
        child.process.wait()
        for held in overdue:
            try:
                settle_timed_out(self.app, held)
            except Exception as error:
                self._outage.log(error)

    def _child_ended(self, child: Child, code: int, now: float) -> None:
        self.children.remove(child)
        held, vitals = child.slots.held(), child.slots.vitals
        flags = vitals.flags
        self._settled_by_ended += vitals.settled
        if code == MISSING_RIGHT and not (held or vitals.claimed_at):  # not a job's exit code
            self._end_code = REFUSED  # the child logged which right; the store knows nothing of it
            child.close()
            self._slots_files.remove(child.id)
            if not self.draining:
                self.stop()
            return
        # A child that was not asked to exit, and did not announce it, was ended by a job.
        leaving = self.draining or child.retired or flags & (Flag.RETIRING | Flag.DRAINED)
        clean = code == 0 and bool(leaving)
        if clean and flags & Flag.DRAINED:
            self._settings.drained(child.queues)
        # Jobs of a child that exited as asked, or that was killed from here, have not failed; but
        # an at-most-once job that had begun must not begin again.
        begun = [job for job in held if job.at_most_once or not (clean or child.killed_by_us)]
        death = child.killed_because or describe_exit(code)
        evidence = {job.id: child.words.evidence(job.id, death, vitals.memory) for job in begun}
        child.close()
        if clean:
            log.info("child %d has exited", child.pid)
        else:
            then = "" if self.draining else "; another takes its place"
            log.warning(
                "child %d died (%s) while it ran %s%s",
                child.pid,
                describe_exit(code),
                job_list(held),
                then,
            )
        # Logged before the store is told, which may take as long as an outage.
        self._dead.add(child.id, evidence, now, clean=clean)
        self._dead.report(now)
        if flags & Flag.READY:
            self._failed_starts = 0
        elif not self.draining:
            self._failed_starts += 1
        if clean or child.killed_by_us or now - child.began > _QUICK_DEATH_SECONDS:
            self._pause = _PAUSE_FIRST
        else:
            self._start_at = now + self._pause
            self._pause = min(_PAUSE_LONGEST, self._pause * 2)

    def _lease(self) -> float:
        """The lease of the children, as their queues have it now."""
        app, own, heard = self.app, self._config.lease, rules_heard(self.children)
        with suppress(Exception):
            self._settings.refresh(app.broker, heard)
        if own is None:
            with suppress(Exception):  # the renewal that follows says what is wrong
                app.queues.refresh(app.broker, app.name, heard)
        return own or app.queues.lease(self._config.queues)

    def _rows(self) -> list[WorkerRow]:
        return [row_of(child, self.app, self._config) for child in list(self.children)]

    def _live(self) -> Answer:
        waits = self._waits_for is not None
        return waits or monotonic() - self._checked_at < self._red_after, self._state()

    def _ready(self) -> Answer:
        recent = monotonic() - last_answer(self.children) < self._red_after
        return not self.draining and recent, self._state()

    def _state(self) -> dict[str, Any]:
        children = children_state(self.children)
        return {"draining": self.draining, "waits_for": self._waits_for, "children": children}
