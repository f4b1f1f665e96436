"""What a storm does to processes: kill, freeze and restart them, one by one or a whole group."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path


class ProcessGroup:
    """A command and all processes that it starts, as one process group; started again at will."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: dict[str, str]
    ) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._environment = environment
        self._process = self._started()
        self._groups = [self._process.pid]  # also of those that were killed before

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # so that one signal reaches all of it
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def started_by(self, pid: int) -> bool:
        """Whether this process is one of the group, and not its first."""
        with suppress(ProcessLookupError):
            return pid != self._process.pid and os.getpgid(pid) == self._process.pid
        return False

    def kill_first(self) -> None:
        """SIGKILL for the first process alone: the others have to notice."""
        self._process.kill()
        self._again()

    def kill_all(self) -> None:
        """SIGKILL for every process of the group."""
        _signal_group(self._process.pid, signal.SIGKILL)
        self._again()

    def restart(self, patience: float = 60.0) -> None:
        """SIGTERM, as a deploy does, and start again."""
        self.stop(patience)
        self._again()

    def freeze(self, seconds: float) -> None:
        """Suspend every process of the group for so long."""
        group = self._process.pid
        _signal_group(group, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            _signal_group(group, signal.SIGCONT)

    def stop(self, patience: float = 60.0) -> None:
        """SIGTERM; safe to call again."""
        if self.running:
            self._process.terminate()
            self._process.wait(patience)

    def leftovers(self) -> list[int]:
        """The processes of this group, and of those before, that are alive."""
        return [pid for group in self._groups for pid in _alive_in(group)]

    def kill_leftovers(self) -> None:
        for group in self._groups:
            _signal_group(group, signal.SIGKILL)
        self._process.wait()

    def _again(self) -> None:
        self._process.wait()
        self._process = self._started()
        self._groups.append(self._process.pid)


def _alive_in(group: int) -> list[int]:
    """The processes of a group; one that is dead and not yet waited for does not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat="],  # noqa: S607  on every system of this kind
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [int(pid) for pid, pgid, state in rows if int(pgid) == group and state[0] != "Z"]


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


class StormFault:
    """One kind of trouble, how often it comes, and how often it came."""

    def __init__(self, name: str, weight: int, strike: Callable[[random.Random], object]) -> None:
        self.name = name
        self.weight = weight
        self.strike = strike
        self.times = 0
