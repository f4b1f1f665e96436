"""JsonLogBroker: the memory broker, and a log of every call that changed it.

A call returns once it is a line of the log, on the disk. Opening the store replays the calls of the
log, each at its own time. The log is never shortened and only one process may open it: an example
of how little a store must know about jobs, not a store for production.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.slice import Reach
from penstock.broker.traits import ONE_PLACE
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused, StoreUnreachable
from penstock_jsonlog.values import from_line, to_line

P = ParamSpec("P")
R = TypeVar("R")


class LogClock:
    """The time of the current call: the logged time during replay, now otherwise.

    Monotonic time restarts with every boot, and leases must not: it continues from the last call
    in the log, by as much as the wall clock advanced.
    """

    def __init__(self, clock: AnyClock) -> None:
        self._clock = clock
        self._shift = 0.0
        self._at = threading.local()

    def now(self) -> float:
        at: tuple[float, float] | None = getattr(self._at, "call", None)
        return self._clock.now() if at is None else at[0]

    def monotonic(self) -> float:
        at: tuple[float, float] | None = getattr(self._at, "call", None)
        return self._clock.monotonic() + self._shift if at is None else at[1]

    def at(self, call: tuple[float, float] | None) -> None:
        """Fix the time of this thread at this call; None: use the real clock."""
        self._at.call = call

    def go_on_from(self, last: tuple[float, float]) -> None:
        passed = max(0.0, self._clock.now() - last[0])
        self._shift = last[1] + passed - self._clock.monotonic()


class JsonLogBroker:
    """Every verb of `penstock.broker.protocol.Broker`, bound once to the memory broker's."""

    def __init__(self, path: Path, clock: AnyClock) -> None:
        self.clock = clock
        self._time = LogClock(clock)
        self._memory = memory = MemoryBroker(self._time)
        self.traits = memory.traits
        self.traits.name = "the JSON log"
        self.traits.capabilities = ONE_PLACE
        self._lock = threading.RLock()
        self._broken = False
        self._file = _opened(path)
        self._store = self._replayed()

        self.enqueue = self._logged(memory.enqueue)
        self.claim = self._logged(memory.claim)
        self.settle = self._logged(memory.settle)
        self.renew = self._logged(memory.renew)
        self.note = self._logged(memory.note)
        self.recover = self._logged(memory.recover)
        self.prune = self._logged(memory.prune)
        self.gauge = self._logged(memory.gauge)
        self.wait, self.wake = memory.wait, memory.wake
        self.get, self.count = memory.get, memory.count
        self.history, self.why = memory.history, memory.why

        self.act = self._logged(memory.act)
        self.signal = self._logged(memory.signal)
        self.put = self._logged(memory.put)
        self.clear = self._logged(memory.clear)
        self.decide_schedule = self._logged(memory.decide_schedule)
        self.audit = self._logged(memory.audit)

        self.notes, self.find, self.workers = memory.notes, memory.find, memory.workers
        self.flow, self.flows, self.outputs = memory.flow, memory.flows, memory.outputs
        self.records = memory.records

        self.get_many = memory.get_many
        self.stage = self._logged(memory.stage)
        self.commit_write = self._logged(memory.commit_write)
        self.discard = self._logged(memory.discard)
        self.slices, self.scan = memory.slices, memory.scan

    def reach(self, *arguments: Any, **options: Any) -> Reach:
        """As the memory broker's, with this store's id: that broker makes a new one per process."""
        reach = self._memory.reach(*arguments, **options)
        return msgspec.structs.replace(reach, store=self._store)

    def close(self) -> None:
        self._memory.close()
        with self._lock:
            self._file.close()

    def _logged(self, verb: Callable[P, R]) -> Callable[P, R]:
        @wraps(verb)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            # One at a time, so that the log has the order in which calls changed the store.
            with self._lock:
                if self._broken:
                    raise StoreUnreachable(f"{self._file.name}: a write failed; open it again")
                at = self._time.now(), self._time.monotonic()
                self._time.at(at)
                try:
                    answer = verb(*arguments, **options)  # refused calls change nothing
                finally:
                    self._time.at(None)
                self._append([verb.__name__, *at, list(arguments), dict(options)])
                return answer

        return call

    def _append(self, record: list[Any]) -> None:
        try:
            self._file.write(to_line(record))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._broken = True  # memory has changes that are not on the disk
            raise StoreUnreachable(f"{self._file.name}: {error}") from error

    def _replayed(self) -> str:
        """Replay the calls of the log; returns the store's id, its first line."""
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            # Cut off by a crash: this call never returned.
            self._file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        if not lines:
            name = str(uuid.uuid4())
            self._append([name])
            return name
        [name] = from_line(lines[0])
        for line in lines[1:]:
            verb, now, monotonic, arguments, options = from_line(line)
            self._time.at((now, monotonic))
            getattr(self._memory, verb)(*arguments, **options)
            self._time.go_on_from((now, monotonic))
        self._time.at(None)
        return name


def _opened(path: Path) -> Any:
    path.touch(mode=0o600)
    file = path.open("r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise Refused(f"{path} is open already: one broker at a time has the log") from None
    return file
