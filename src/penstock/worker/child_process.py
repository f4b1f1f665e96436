"""A child process as its supervisor sees it: start, stop, pulse, exit. Inside it runs child.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.version import RELEASE
from penstock.broker.views import WorkerRow
from penstock.worker.capacity import Capacity
from penstock.worker.child import ChildConfig
from penstock.worker.last_words import LastWords
from penstock.worker.running_slots import Flag, RunningSlots

if TYPE_CHECKING:
    from penstock.app.app import App

_COMMAND = (sys.executable, "-m", "penstock.worker", "child")

FROZEN_SECONDS = 1.0  # no pulse for this long: suspended, or a job holds the interpreter

monotonic = time.monotonic


class Child:
    """A running child: its process, shared slots, and the pipe to it. The constructor starts it."""

    def __init__(self, config: ChildConfig, slots: RunningSlots, started_at: float) -> None:
        self.id = config.id
        self.queues = config.queues
        self.capacity = Capacity(config.threads, config.async_slots, config.quiet)
        self.slots = slots
        self.started_at = started_at
        self.began = monotonic()
        self.pulse: int = -1
        self.pulse_at = self.began  # when the pulse last changed
        self.pulsing_since = self.began  # it has had a pulse ever since
        self.retired = False  # it drains, and another takes its place
        self.leave_until: float | None = None  # killed if it has not exited by then
        self.killed_by_us = False  # then what it ran has not failed
        self.killed_because = ""  # for the evidence, if what it ran counts a lapse
        try:
            self.words = LastWords()
        except OSError:
            self.slots.close()
            raise
        try:
            control, self._control = os.pipe()
        except OSError:
            self.words.close()
            self.slots.close()
            raise
        try:
            config = msgspec.structs.replace(
                config,
                slots=self.slots.descriptor,
                control=control,
                words=self.words.descriptor,
            )
            self.process = subprocess.Popen(
                [*_COMMAND, msgspec.json.encode(config).decode()],
                pass_fds=[control, self.words.descriptor, self.slots.descriptor or -1],
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            os.close(self._control)
            self.words.close()
            self.slots.close()
            raise
        finally:
            os.close(control)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ready(self) -> bool:
        return bool(self.slots.vitals.flags & Flag.READY)

    def change(self, capacity: Capacity) -> None:
        """Tell it how much to run from now on, once it reads what it is told."""
        if self.ready and capacity != self.capacity:
            self.send(msgspec.json.encode(capacity).decode())
            self.capacity = capacity

    def send(self, word: str) -> None:
        """Send drain, now, retire or a capacity; see child.py."""
        with suppress(OSError):
            os.write(self._control, f"{word}\n".encode())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    def seconds_without_pulse(self, now: float) -> float:
        """Seconds since its pulse last changed."""
        pulse = self.slots.pulse
        if now - self.pulse_at >= FROZEN_SECONDS:
            self.pulsing_since = now
        if pulse != self.pulse:
            self.pulse, self.pulse_at = pulse, now
        return now - self.pulse_at

    def is_cut_off(self, now: float, reaching_since: float | None, silence: float) -> bool:
        """Whether it alone has not reached the store for long, and it is not frozen.

        Its lease, which its supervisor renews, would hold its jobs for ever. `reaching_since`: when
        the supervisor began to reach the store, if it does.
        """
        vitals = self.slots.vitals
        if reaching_since is None or not vitals.flags & Flag.READY or self.leave_until is not None:
            return False
        return now - max(reaching_since, self.pulsing_since, vitals.reached_at) >= silence

    def close(self) -> None:
        self.process.wait()
        os.close(self._control)
        self.words.close()
        self.slots.close()


def row_of(child: Child, app: App, config: ChildConfig) -> WorkerRow:
    """The child's row in the store, as its supervisor renews it."""
    vitals = child.slots.vitals
    return WorkerRow(
        id=child.id,
        app=app.name,
        tasks=app.known_tasks(detached=False),
        places=app.task_places,
        tags=frozenset(config.tags),
        queues=child.queues,
        host=socket.gethostname(),
        pid=child.pid,
        lease=config.lease or app.queues.lease(child.queues),
        started_at=child.started_at,
        penstock=RELEASE,
        code=app.code,
        claimed_at=vitals.claimed_at or None,
        running=vitals.running,
        began=child.slots.began(),
        stale=vitals.stale,
        put_back=child.slots.put_backs(),
        group=config.group,
        **msgspec.structs.asdict(child.capacity),
    )


def last_answer(children: Sequence[Child]) -> float:
    """When the store last answered one of them, by the monotonic clock; 0: none."""
    return max(
        (child.slots.vitals.answered_at for child in list(children) if child.ready), default=0.0
    )


def rules_heard(children: Sequence[Child]) -> int:
    """The version of the store's rules, as the children heard it: their supervisor need not listen.

    It changes with each of them that hears of a change, and with each that comes or goes.
    """
    return hash(tuple((child.id, child.slots.vitals.rules_version) for child in list(children)))


def children_state(children: Sequence[Child]) -> list[dict[str, Any]]:
    """How each of them is doing, for probes."""
    return [
        {"pid": child.pid, "id": child.id, **child.slots.vitals._asdict()}
        for child in list(children)
    ]
