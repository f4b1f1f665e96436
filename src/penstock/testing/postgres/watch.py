"""The watcher: a process that ends a server and removes its folders when nobody needs it any more.

It waits for the end of its input, which is a pipe that the owner of the server holds: a killed
owner lets go of it as well as one that closes it. It is run as a file, by itself, so it starts in
a blink: nothing but the standard library may be imported here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PATIENCE = 5.0


def children_of(parent: int) -> list[int]:
    """The processes that `parent` started and that have not ended."""
    return [pid for pid, (of, ended) in _processes().items() if of == parent and not ended]


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Sends a signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_until_gone(pids: Iterable[int], patience: float = _PATIENCE) -> list[int]:
    """Waits for processes that others started; those which are still there after `patience`."""
    deadline = time.monotonic() + patience
    while True:
        there = {pid for pid, (_, ended) in _processes().items() if not ended}
        left = [pid for pid in pids if pid in there]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def end(server: int) -> None:
    """Ends a server and all its processes, stopped ones too."""
    family = [server, *children_of(server)]
    send(signal.SIGCONT, family)
    send(signal.SIGQUIT, [server])
    if left := wait_until_gone(family):
        send(signal.SIGKILL, left)
        wait_until_gone(left)


def server_of(data: Path) -> int | None:
    """The process that serves this data folder, if there is one."""
    try:
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    # The file outlives a server that was killed, and its number may be somebody else's by now.
    return pid if str(data) in _command_of(pid) else None


def _processes() -> dict[int, tuple[int, bool]]:
    """Of every process: its parent, and whether it has ended and is only not collected yet."""
    if not (_PROC / "self" / "stat").exists():
        lines = _told_by_ps("-A", "-o", "pid=,ppid=,stat=").splitlines()
        rows = [line.split() for line in lines]
        return {int(pid): (int(of), stat.startswith("Z")) for pid, of, stat in rows}
    found: dict[int, tuple[int, bool]] = {}
    for process in _PROC.iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                line = (process / "stat").read_bytes()
                state, parent = line.rpartition(b")")[2].split()[:2]
                found[int(process.name)] = (int(parent), state in b"ZX")
    return found


def _command_of(pid: int) -> str:
    if not (_PROC / "self" / "stat").exists():
        return _told_by_ps("-p", str(pid), "-o", "command=")
    try:
        return os.fsdecode((_PROC / str(pid) / "cmdline").read_bytes())
    except OSError:
        return ""


def _told_by_ps(*options: str) -> str:
    told = subprocess.run(["/bin/ps", *options], capture_output=True, text=True, check=False)
    return told.stdout


def main(data: Path, folders: list[Path]) -> None:
    sys.stdin.buffer.read()
    if (server := server_of(data)) is not None:
        end(server)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
