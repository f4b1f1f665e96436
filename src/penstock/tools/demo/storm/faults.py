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

_STOP_SECONDS = 120.0  # the grace, and calls to a store that answers late


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
        # Groups whose first process has ended, and when: the number may be used again from then on.
        self._ended: list[tuple[int, float]] = []
        self._end_noted = False

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
        if self._process.poll() is None:
            return True
        self._note_end()
        return False

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

    def restart(self, patience: float = _STOP_SECONDS) -> None:
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

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """SIGTERM; safe to call again."""
        if self.running:
            self._process.terminate()
            self._process.wait(patience)

    def leftovers(self) -> list[int]:
        """The processes of this group, and of those before, that are alive."""
        current = _alive_in(self._process.pid) if self.running else []
        return [*current, *(pid for group, at in self._ended for pid in _alive_in(group, at))]

    def kill_leftovers(self) -> None:
        for pid in self.leftovers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _again(self) -> None:
        self._process.wait()
        self._note_end()
        self._process, self._end_noted = self._started(), False

    def _note_end(self) -> None:
        if not self._end_noted:
            self._end_noted = True
            self._ended.append((self._process.pid, time.time()))


def _alive_in(group: int, before: float = float("inf")) -> list[int]:
    """The processes of a group; one that is dead and not yet waited for does not count.

    Nor does one that started later than `before`: the number of a group is used again.
    """
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return []
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,etimes=,stat="],  # noqa: S607  on every system of this kind
        capture_output=True,
        text=True,
        check=True,
    )
    now = time.time()
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [
        int(pid)
        for pid, pgid, seconds, state in rows
        if int(pgid) == group and now - int(seconds) <= before + 1 and state[0] != "Z"
    ]


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
