"""One child process, as its supervisor holds it: the process, its slots and the pipe to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import msgspec

from penstock.worker.child import ChildConfig
from penstock.worker.running_slots import Flag, RunningSlots

_COMMAND = (sys.executable, "-m", "penstock.worker", "child")

monotonic = time.monotonic


class Child:
    """Started when made."""

    def __init__(self, config: ChildConfig, started_at: float) -> None:
        self.id = config.id
        self.slots = RunningSlots.make(config.threads + config.async_slots)
        self.started_at = started_at
        self.began = monotonic()
        self.pulse = -1
        self.seen_at = self.began  # when the pulse last moved
        self.retired = False  # it drains, and another has its place
        self.leave_until: float | None = None  # killed if it is still there
        self.dismissed = False  # we ended it: what it ran has not failed
        try:
            control, self._control = os.pipe()
        except OSError:
            self.slots.close()
            raise
        try:
            told = msgspec.structs.replace(config, slots=self.slots.descriptor, control=control)
            self.process = subprocess.Popen(
                [*_COMMAND, msgspec.json.encode(told).decode()],
                pass_fds=[control, self.slots.descriptor or -1],
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            os.close(self._control)
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

    def tell(self, word: str) -> None:
        """Say drain, now or retire."""
        with suppress(OSError):
            os.write(self._control, f"{word}\n".encode())

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    def still_for(self, now: float) -> float:
        """Seconds since its pulse last moved."""
        pulse = self.slots.pulse
        if pulse != self.pulse:
            self.pulse, self.seen_at = pulse, now
        return now - self.seen_at

    def close(self) -> None:
        self.process.wait()
        os.close(self._control)
        self.slots.close()


def ending(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
