"""The worker beside the demo, a real `penstock worker`, and waiting for what it does.

Whoever waits sees to it that the worker is still there: a demo that hangs shows nothing.
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
def unbroken() -> Generator[None]:
    """Ctrl-C and SIGTERM wait for the end of this: who starts a process also notes it down."""
    came: list[int] = []

    def later(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

    before = {number: signal.signal(number, later) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


class BesideWorker:
    """A worker in a process of its own; its words go to a file."""

    def __init__(self, target: str, url: str, log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "penstock", "worker", target, "--url", url, *options]
        self.log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file)
        self.pid = self._process.pid

    def check(self, what: str) -> None:
        """Refuse to wait on for `what` if it has ended."""
        if self._process.poll() is not None:
            raise PenstockError(
                f"the worker ended while the demo waited for {what}; its words are in {self.log}"
            )

    def stop(self) -> None:
        """Have it end, however long it takes; safe to call again."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait(
    done: Callable[[], bool],
    what: str,
    check: Callable[[str], None],
    moved: Callable[[], object] = lambda: None,
    patience: float = PATIENCE,
) -> None:
    """Until `done`; given up when `moved` has answered the same for so long that nothing goes on.

    `check` is asked all the while whether it makes sense to wait on.
    """
    last, until = moved(), time.monotonic() + patience
    while not done():
        check(what)
        if (now := moved()) != last:
            last, until = now, time.monotonic() + patience
        elif time.monotonic() > until:
            raise PenstockError(f"the demo waited {patience:.0f} s for {what}")
        time.sleep(_LOOK_SECONDS)
