"""Nothing that a test run started outlives it, however it ends: done, Ctrl-C, SIGTERM, kill -9.

Workers, detached jobs and Java are in sessions of their own on purpose, so neither a terminal nor
a process group reaches all of them. Each inherits an environment variable that names the run. A
watcher process, run as this file, waits for the end of pytest and kills whoever has that variable,
and their children. Only where there is /proc: elsewhere nothing is watched.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "TEST_RUN"  # not PENSTOCK_...: many tests leave those out of what they start
# Once its owner is dead a server is ended, and its data removed, by a watcher of its own.
_SERVERS = (
    *(b"testing/postgres/watch.py", b"/postgres\0", b"postgres: "),
    *(b"testing/redis/watch.py", b"valkey-server", b"redis-server"),
)
_PROC = Path("/proc")
_PATIENCE = 30.0
_watchers: list[subprocess.Popen[bytes]] = []


def pytest_configure() -> None:
    """Once per run: test processes of xdist and nested runs have the mark already."""
    if MARK in os.environ or not hasattr(os, "pidfd_open") or not (_PROC / "self/stat").exists():
        return
    environment = dict(os.environ)
    os.environ[MARK] = secrets.token_hex(8)
    # A session of its own: Ctrl-C is for pytest.
    _watchers.append(
        subprocess.Popen(
            [sys.executable, __file__, str(os.getpid()), os.environ[MARK]],
            env=environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    )


def pytest_unconfigure() -> None:
    """At an orderly end, wait until the watcher is done."""
    while _watchers:
        _watchers.pop().communicate(b".")
        del os.environ[MARK]


def kill_all(mark: str) -> list[str]:
    """Kill the processes of a run, until there are none; their command lines."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + _PATIENCE
    while found := dict(_of_run(mark)):
        patient = time.monotonic() < deadline
        ends: list[int] = []
        for pid, command in found.items():
            with suppress(ProcessLookupError):
                ends.append(os.pidfd_open(pid))
                if not (patient and any(words in command for words in _SERVERS)):
                    os.kill(pid, signal.SIGKILL)
                    killed[pid] = command.replace(b"\0", b" ").decode(errors="replace").strip()
        select.select(ends, [], [], 1.0)  # one that was started meanwhile is not waited for
        for end in ends:
            os.close(end)
    return [command for command in killed.values() if command]


def _of_run(mark: str) -> Iterator[tuple[int, bytes]]:
    """The processes that have the mark, or whose parents have; with their commands."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # ended, or another user's
                state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state in b"ZX":
                    continue
                parents[int(folder.name)] = int(parent)
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    marked.add(int(folder.name))
    while more := {pid for pid, parent in parents.items() if parent in marked} - marked:
        marked |= more
    for pid in marked:
        with suppress(OSError):
            yield pid, (_PROC / str(pid) / "cmdline").read_bytes()


def _watch(run: int, mark: str) -> None:
    with suppress(ProcessLookupError):  # ended already
        end = os.pidfd_open(run)
        # A word, or its end. Of the two, not the pipe alone: a test that forks has it, too.
        select.select([end, sys.stdin], [], [])
    for command in kill_all(mark):
        print(f"outlived its test run, and was killed: {command[:200]}", file=sys.stderr)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
