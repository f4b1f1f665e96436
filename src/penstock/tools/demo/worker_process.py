"""The demo's worker, a real `penstock worker`, and waiting for what it does.

Every wait checks that the worker still runs, and has a time limit.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from penstock.errors import PenstockError

PATIENCE = 120.0
_LOOK_SECONDS = 0.05
_LEAVE_SECONDS = 60.0


@contextmanager
def signals_deferred() -> Generator[None]:
    """Ctrl-C and SIGTERM take effect at the end of this: no process is started and not recorded."""
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)

    before = {number: signal.signal(number, defer) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


class WorkerProcess:
    """A worker in a process of its own; it logs to a file."""

    def __init__(self, target: str, url: str, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "worker", target, "--url", url, *options]
        self.log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file)
        self.pid = self._process.pid

    def check(self, what: str) -> None:
        """Raise if it has ended while the demo waits for `what`."""
        if self._process.poll() is not None:
            raise PenstockError(
                f"the worker ended while the demo waited for {what}; see its log, {self.log}"
            )

    def stop(self) -> None:
        """End it: by SIGTERM, after a minute by SIGKILL; safe to call again."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(
    done: Callable[[], bool],
    what: str,
    check: Callable[[str], None],
    progress: Callable[[], object] = lambda: None,
    patience: float = PATIENCE,
) -> None:
    """Wait until `done`; fail if `progress` stays the same for too long, or if `check` raises."""
    last, until = progress(), time.monotonic() + patience
    while not done():
        check(what)
        if (now := progress()) != last:
            last, until = now, time.monotonic() + patience
        elif time.monotonic() > until:
            raise PenstockError(f"the demo waited {patience:.0f} s for {what}, and gives up")
        time.sleep(_LOOK_SECONDS)
