"""How much a worker runs: as it was started, and as an operator set it since.

    store --(the supervisor's heartbeat reads)--> settings --(its loop applies)--> children

A child that is told another number keeps what it runs: threads end when they are free. Processes
that are too many finish what they run within the grace. A store that is away changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.worker_settings import WorkerSettings
from penstock.worker.other_places import warn_of_other_places

if TYPE_CHECKING:
    from penstock.app.app import App

READ_SECONDS = 30.0  # between two reads, although nothing says that something changed
SECONDS_BETWEEN = 0.5  # two reads, where the version of the rules changes with every look at it

Queues = tuple[str, ...] | None  # that a child serves; None: all

log = logging.getLogger("penstock.worker")


class Capacity(msgspec.Struct, frozen=True):
    """What one child process may run at a time; `quiet`: it claims nothing."""

    threads: int
    async_slots: int
    quiet: bool = False


class LiveSettings:
    """The settings of a supervisor: its heartbeat calls `refresh`, its loop the rest."""

    def __init__(
        self, name: str, capacity: Capacity, processes: Mapping[Queues, int], *, named: bool
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.began_at = 0.0  # by the store's clock
        self._named = named  # by its operator; then settings from before its start count, too
        self._own = (capacity, dict(processes))
        self._wanted: dict[Queues, int] = dict(processes)
        self._drained: Counter[Queues] = Counter()  # children that ended since nothing was left
        self._read: WorkerSettings | None = None
        self._applied: WorkerSettings | None = None
        self._version: int | None = None
        self._read_at = 0.0

    def begin(self, app: App) -> None:
        """The store is open: from here on settings are about this worker, and so are warnings."""
        self.began_at = app.broker.clock.now()
        warn_of_other_places(app, self.name)

    def refresh(self, broker: Broker, version: int) -> None:
        """Read the settings from the store, if this version of its rules is another one."""
        now = time.monotonic()
        changed = version != self._version and now >= self._read_at + SECONDS_BETWEEN
        if changed or now >= self._read_at + READ_SECONDS:
            self._read_at = now
            found = (each for each in broker.records(WorkerSettings) if each.worker == self.name)
            read = next(found, None)
            meant = self._named or read is None or read.set_at >= self.began_at
            self._read = read if meant else None
            self._version = version

    def apply(self) -> bool:
        """Take over what was read last; whether the worker is to stop."""
        read = self._read
        if read is self._applied or read == self._applied:
            return False
        before, self._applied = self._applied, read
        own, processes = self._own
        settings = read or WorkerSettings(worker=self.name)
        self.capacity = Capacity(
            settings.threads or own.threads,
            settings.async_slots or own.async_slots,
            bool(settings.quiet),
        )
        self._wanted = self._processes(settings, processes)
        who = f" by {settings.author}" if settings.author else ""
        log.info("settings of worker %s changed%s: %s", self.name, who, settings.text)
        stopped_before = 0.0 if before is None else before.stop_at
        return settings.stop_at > max(self.began_at, stopped_before)

    def _processes(self, settings: WorkerSettings, own: Mapping[Queues, int]) -> dict[Queues, int]:
        by_queue = {(queue,): number for queue, number in settings.queues.items()}
        if len(own) == 1 and not by_queue:
            return {queues: settings.processes or number for queues, number in own.items()}
        if settings.processes is not None or (by_queue and None in own):
            log.warning(
                "settings of worker %s: processes are set with --queue NAME=N for a worker that "
                "was started so, and with --processes for others; the other one is left out",
                self.name,
            )
        if by_queue and len(own) == 1 and next(iter(own)) is None:
            return {None: settings.processes or own[None]}
        return {**own, **by_queue}

    def drained(self, queues: Queues) -> None:
        """A child of these queues has ended since nothing was left to run."""
        self._drained[queues] += 1

    @property
    def all_drained(self) -> bool:
        return all(self._drained[queues] >= number for queues, number in self._wanted.items())

    def missing(self, running: Sequence[Queues]) -> list[Queues]:
        """The queues of the children to start, given those that run and do not end."""
        have = Counter(running)
        return [
            queues
            for queues, number in self._wanted.items()
            for _ in range(number - self._drained[queues] - have[queues])
        ]

    def surplus(self, running: Sequence[Queues]) -> Counter[Queues]:
        """How many children of each group are too many."""
        return Counter(running) - Counter(self._wanted)
