"""A storm: producers and workers on one store, killed and frozen at random, then checked.

    storm = Storm(url, folder, seed=7)
    storm.prepare()
    storm.rage(60)
    verdict = storm.calm()
    assert verdict.holds, verdict.sentences()

A test adds faults of its own: a server, a proxy, a dashboard. A storm in which something never
happened that it is meant to test, such as the refusal of a stale settlement, does not count:
`StormVerdict.missing` names it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.broker.protocol import Broker
from penstock.errors import PenstockError, StoreFull, StoreUnreachable, UnknownOutcome
from penstock.testing.checker import Verdict, check_store
from penstock.tools.demo.storm import tasks
from penstock.tools.demo.storm.faults import ProcessGroup, StormFault

T = TypeVar("T")

LEASE_SECONDS = 1.0
_FREEZE_SECONDS = 2.5 * LEASE_SECONDS
_CALM_SECONDS = 300.0
_MORE_SECONDS = 60.0
_END_SECONDS = 15.0
_WAIT_SECONDS = 10.0
_SCHEDULE = "storm-tick"
_AWAY = (StoreUnreachable, StoreFull, UnknownOutcome)
# What must have happened, or the storm proves nothing.
WANTED = ("lapses", "stale settlements", "retried attempts", "limits", "slots", "flows")


class StormVerdict(msgspec.Struct, frozen=True):
    """What a storm did, and what became of the jobs."""

    seed: int
    seconds: float
    faults: dict[str, int]
    accepted: int  # jobs whose enqueue returned
    history: Verdict
    transfers: int  # jobs that succeeded with a row of their own in the same transaction
    effects: tuple[int, int]  # rows that they left, and of how many jobs
    gone: list[str]  # groups that ended by themselves
    deaf: list[str]  # workers that are alive, and claim nothing
    leftovers: list[int]  # processes that were alive at the end

    @property
    def missing(self) -> list[str]:
        """What never happened, so that nothing was proved about it."""
        return [what for what in WANTED if not self.history.seen[what]]

    @property
    def effects_once(self) -> bool:
        return self.effects == (self.transfers, self.transfers)

    @property
    def holds(self) -> bool:
        return not self.sentences()

    def sentences(self) -> list[str]:
        """Everything that is wrong; none if it holds."""
        rows, jobs = self.effects
        wrong = [str(found) for found in self.history.contradictions]
        if not self.effects_once:
            wrong.append(f"{self.transfers} jobs committed a row each: {rows} rows of {jobs} jobs")
        wrong += [f"{name} ended by itself; see its log" for name in self.gone]
        wrong += [f"worker {worker} is alive and claims nothing" for worker in self.deaf]
        if self.leftovers:
            wrong.append(f"these processes were left: {self.leftovers}")
        return wrong + [f"it does not count: there were no {what}" for what in self.missing]


class Storm:
    """Producers and two groups of workers on one store, and what is done to them."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        seed: int,
        worker_environments: Sequence[Mapping[str, str]] = ({}, {}),
        producer_environments: Sequence[Mapping[str, str]] = ({}, {}),
    ) -> None:
        """`..._environments`: variables for each group, such as another way to the store."""
        self.seed = seed
        self.faults: list[StormFault] = []
        self._chance = random.Random(seed)  # noqa: S311  to be repeated
        self._accepted_file = folder / "accepted.txt"
        self._stale: Counter[str] = Counter()  # by worker: their rows go when they are dead
        self._raged = 0.0
        self._groups: list[ProcessGroup] = []
        self._url = url
        self._folder = folder
        worker = ["penstock", "worker", tasks.__name__, "--processes", "2"]
        worker += ["--lease", f"{LEASE_SECONDS}s", "--grace", "5s"]
        self.workers = [
            self.start(f"worker-{number}", *worker, **variables)
            for number, variables in enumerate(worker_environments)
        ]
        self.producers = [
            self.start(
                f"producer-{number}",
                *(f"{__package__}.producer", str(self._accepted_file), str(seed + number)),
                **variables,
            )
            for number, variables in enumerate(producer_environments)
        ]
        self._add_faults()

    @property
    def broker(self) -> Broker:
        return tasks.app.broker

    def start(self, name: str, *words: str, **variables: str) -> ProcessGroup:
        """`python -m` these words, on this store, as a group of its own; it logs to a file."""
        environment = {**os.environ, "PENSTOCK_URL": self._url, **variables}
        command = [sys.executable, "-m", *words]
        group = ProcessGroup(name, command, self._folder / f"{name}.log", environment)
        self._groups.append(group)
        return group

    def prepare(self) -> None:
        """Wait until the workers work."""
        limit, put = tasks.app.limit, tasks.app.schedules.put
        _answer(lambda: limit("limited", running=tasks.MOST_LIMITED, author="storm"))
        _answer(lambda: put(_SCHEDULE, tasks.tick, every=1, author="storm"))
        _answer(lambda: tasks.prepare.enqueue().result(timeout=_CALM_SECONDS))

    def _add_faults(self) -> None:
        for group in self.workers:
            self.add("child killed", 5, lambda _, group=group: self._kill_child(group))
            self.add("supervisor killed", 2, lambda _, group=group: group.kill_first())
            self.add("whole worker killed", 1, lambda _, group=group: group.kill_all())
            self.add("worker restarted", 1, lambda _, group=group: group.restart())
            self.add("worker frozen", 2, lambda _, group=group: self._freeze(group))
        for group in self.producers:
            self.add("producer killed", 1, lambda _, group=group: group.kill_all())

    def add(self, name: str, weight: int, strike: Callable[[random.Random], object]) -> None:
        """One more kind of trouble; the higher its weight, the more often it comes."""
        self.faults.append(StormFault(name, weight, strike))

    def rage(self, seconds: float, watch: Callable[[float], object] = lambda _: None) -> None:
        """Strike for so long: first with every fault once, then at random.

        It goes on for up to a minute more until a stale settlement was refused. `watch` is called
        with the seconds that are over.
        """
        began = time.monotonic()
        weights = [fault.weight for fault in self.faults]
        once = self._chance.sample(self.faults, len(self.faults))
        over = 0.0
        while over < seconds or (over < seconds + _MORE_SECONDS and not self._stale.total()):
            watch(over)
            fault = once.pop() if once else self._chance.choices(self.faults, weights)[0]
            fault.strike(self._chance)
            fault.times += 1
            time.sleep(self._chance.uniform(0.2, 0.8))
            self._until_work_goes_on()
            self._count_stale()
            over = time.monotonic() - began
        self._raged += over

    def accepted(self) -> int:
        """How many jobs were accepted so far."""
        return len(self._accepted_ids())

    def _accepted_ids(self) -> list[str]:
        with suppress(FileNotFoundError):
            return self._accepted_file.read_text(encoding="ascii").split()
        return []

    def did(self) -> dict[str, int]:
        """How often each fault came."""
        times: Counter[str] = Counter()
        for fault in self.faults:
            times[fault.name] += fault.times
        return dict(times)

    def calm(self) -> StormVerdict:
        """No more faults: the jobs end, the processes are stopped, the history is checked."""
        gone = [group.name for group in self._groups if not group.running]
        for producer in self.producers:
            producer.stop()
        _answer(lambda: tasks.app.schedules.remove(_SCHEDULE, author="storm"))
        self._until_empty()
        effects = _answer(lambda: tasks.count_effects.enqueue().result(timeout=_CALM_SECONDS))
        self._count_stale()
        deaf = self._deaf_workers()
        for group in self._groups:
            group.stop()
        accepted = self._accepted_ids()
        history = check_store(self.broker, accepted, tolerance=0.05)
        history.seen["stale settlements"] = sum(self._stale.values())
        return StormVerdict(
            seed=self.seed,
            seconds=self._raged,
            faults=self.did(),
            accepted=len(accepted),
            history=history,
            transfers=history.succeeded[tasks.transfer.name] if tasks.has_transactions() else 0,
            effects=(effects[0], effects[1]),
            gone=gone,
            deaf=deaf,
            leftovers=self._leftovers(),
        )

    def end(self) -> None:
        """Kill whatever is left."""
        for group in self._groups:
            group.kill_leftovers()

    def _leftovers(self) -> list[int]:
        """Processes that are still there, a while after all were stopped."""
        until = time.monotonic() + _END_SECONDS
        while left := [pid for group in self._groups for pid in group.leftovers()]:
            if time.monotonic() > until:
                return left
            time.sleep(0.1)
        return []

    def _kill_child(self, group: ProcessGroup) -> None:
        with suppress(*_AWAY):
            rows = self.broker.workers()
            # Only those that work: five in a row that die before they do end their worker.
            pids = [row.pid for row in rows if row.claimed_at and group.started_by(row.pid)]
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(self._chance.choice(pids), signal.SIGKILL)

    def _freeze(self, group: ProcessGroup) -> None:
        """Suspend a worker for longer than its lease, if possible while it holds jobs."""

        def holds_jobs() -> bool:
            rows = self.broker.workers()
            return any(row.running and group.started_by(row.pid) for row in rows)

        _wait(holds_jobs)
        group.freeze(_FREEZE_SECONDS)

    def _until_work_goes_on(self) -> None:
        """Wait for one more row of history: on a slow machine a worker takes seconds to start."""

        def newest() -> str | None:
            rows = self.broker.history(after=None, limit=1)
            return rows[0].position if rows else None

        before: str | None = None
        with suppress(*_AWAY):
            before = newest()
        _wait(lambda: newest() != before)

    def _count_stale(self) -> None:
        with suppress(*_AWAY):
            for row in self.broker.workers():
                self._stale[row.id] = max(self._stale[row.id], row.stale)

    def _deaf_workers(self) -> list[str]:
        """The workers that do not claim any more, though they are alive."""
        began = self.broker.clock.now()
        until = time.monotonic() + _CALM_SECONDS
        while True:
            alive = [row for row in _answer(self.broker.workers) if row.alive]
            deaf = [row.id for row in alive if (row.claimed_at or 0.0) < began]
            if not deaf or time.monotonic() > until:
                return deaf
            time.sleep(0.2)

    def _until_empty(self) -> None:
        """Wait until no job is left that may run; fail if none ends any more."""
        left, until = -1, time.monotonic() + _CALM_SECONDS
        while True:
            now = sum(count.total for count in _answer(self.broker.count))
            if now == 0:
                return
            if now != left:
                left, until = now, time.monotonic() + _CALM_SECONDS
            elif time.monotonic() > until:
                raise PenstockError(
                    f"{now} jobs are left, and none has ended for {_CALM_SECONDS:.0f} s;"
                    f" the logs are in {self._folder}"
                )
            time.sleep(0.2)


def _wait(done: Callable[[], bool]) -> None:
    """Wait until this is true, but not for long."""
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        with suppress(*_AWAY):
            if done():
                return
        time.sleep(0.05)


def _answer(call: Callable[[], T]) -> T:
    """Call until the store answers: it may have been struck a moment ago."""
    until = time.monotonic() + _CALM_SECONDS
    while True:
        try:
            return call()
        except _AWAY:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
