"""Processes of this host: identify one, find its descendants, wait for its end, kill it.

A process id alone identifies no process, because the kernel uses it again: the start time and the
boot id go with it. Without /proc only the id can be checked, and descendants are not found.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_PR_SET_CHILD_SUBREAPER = 36
_END_SECONDS = 10.0
_POLL_SECONDS = 0.5  # where there is no pidfd
MARK = "PENSTOCK_DETACHED"


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """One process, and no later one that the kernel gives the same number."""

    host: str
    pid: int
    started: int  # in the kernel's ticks: a later process with the same pid has another
    boot: str
    namespace: str  # a container has process ids of its own

    @staticmethod
    def own() -> ProcessId:
        """Of this process."""
        pid = os.getpid()
        return ProcessId(
            host=socket.gethostname(),
            pid=pid,
            started=start_time(pid) or 0,
            boot=boot_id(),
            namespace=pid_namespace(),
        )

    @property
    def on_this_host(self) -> bool:
        """Whether `alive` can be told from here; otherwise only the lease can tell."""
        return self.host == socket.gethostname() and self.namespace == pid_namespace()

    @property
    def alive(self) -> bool:
        """Whether this process runs, on this host and in this boot."""
        return self.on_this_host and self.boot == boot_id() and start_time(self.pid) == self.started

    @property
    def dead(self) -> bool:
        """Whether it ran on this host, in this boot, and has ended.

        Not if it is of another boot: that may be another machine of the same name.
        """
        here = self.on_this_host and self.boot == boot_id()
        return here and start_time(self.pid) != self.started


def boot_id() -> str:
    """Identifies this boot of the machine; empty if unknown."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Identifies the namespace of process ids (a container has its own); empty if unknown."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def start_time(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None if there is none, or it is a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None if _PROC.joinpath("self").exists() else _zero_if_alive(pid)
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _zero_if_alive(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


def wait_for_end(pid: int, started: int) -> None:
    """Return when this process has ended; does not poll where the kernel has pidfd."""
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            descriptor = None
        if descriptor is not None:
            try:
                if start_time(pid) == started:
                    poll = select.poll()
                    poll.register(descriptor, select.POLLIN)
                    poll.poll()
                return
            finally:
                os.close(descriptor)
    while start_time(pid) == started:
        time.sleep(_POLL_SECONDS)


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends, so that none escapes."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(own: int) -> None:
    """Reap adopted descendants that have ended; not `own`, which another thread waits for."""
    if sys.platform == "linux":
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, flags)) is not None and ended.si_pid != own:
                os.waitpid(ended.si_pid, 0)


def descendants(root: int) -> list[int]:
    """All processes below this one, without zombies."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_bytes().rpartition(b")")[2].split()
            if fields[0] not in {b"Z", b"X"}:
                children[int(fields[1])].append(int(path.parent.name))
    pids: list[int] = []
    left = [root]
    while left:
        below = children.get(left.pop(), [])
        pids += below
        left += below
    return pids


def kill_descendants(root: int) -> list[int]:
    """Kill all descendants of this process; returns those still there after ten seconds."""
    until = time.monotonic() + _END_SECONDS
    while pids := descendants(root):
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return pids
        time.sleep(0.01)
    return []


def mark_of(job: str, attempt: int) -> str:
    """The value of MARK in the environment of every process of this attempt."""
    return f"{job}:{attempt}"


def kill_marked(job: str, attempt: int) -> int:
    """Kill the processes of an attempt whose keeper is dead; returns how many there were."""
    mark, killed = f"{MARK}={mark_of(job, attempt)}".encode(), 0
    for path in _PROC.glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                killed += 1
    return killed
