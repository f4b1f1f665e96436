"""Processes of this host: which one is meant, what descends from it, and its end.

A number alone names no process, because the kernel gives it out again: the start time and the boot
go with it. Without /proc only the number can be looked at, and descendants are not found.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_PR_SET_CHILD_SUBREAPER = 36
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.5  # where the kernel cannot tell of an end by itself
MARK = "PENSTOCK_DETACHED"


def boot_id() -> str:
    """What tells this boot of the machine from every other; empty if nothing does."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def namespace() -> str:
    """Where numbers of processes mean the same as here; empty if there is but one such place."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def start_of(pid: int) -> int | None:
    """When the process started, in the kernel's ticks; None if it is not there, or only waits."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None if _PROC.joinpath("self").exists() else _by_number(pid)
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _by_number(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


def wait_for_end(pid: int, started: int) -> None:
    """Return when this very process has ended; nothing is asked again and again meanwhile."""
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            descriptor = None
        if descriptor is not None:
            try:
                if start_of(pid) == started:
                    poll = select.poll()
                    poll.register(descriptor, select.POLLIN)
                    poll.poll()
                return
            finally:
                os.close(descriptor)
    while start_of(pid) == started:
        time.sleep(_LOOK_SECONDS)


def take_in_strays() -> None:
    """Be the parent of every descendant whose own parent ends, so that none can slip away."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def let_strays_go(own: int) -> None:
    """Of those that were taken in, let the kernel forget the ones that have ended.

    `own` is the child that somebody else here waits for.
    """
    if sys.platform == "linux":
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, look)) is not None and ended.si_pid != own:
                os.waitpid(ended.si_pid, 0)


def descendants(root: int) -> list[int]:
    """What this process started, and what that started, and so on; those that ended left out."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_bytes().rpartition(b")")[2].split()
            if fields[0] not in {b"Z", b"X"}:
                children[int(fields[1])].append(int(path.parent.name))
    found: list[int] = []
    left = [root]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def end_descendants(root: int) -> list[int]:
    """Kill all that descends from this process until nothing is left; what would not go."""
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
    """What every process of this attempt has in its environment."""
    return f"{job}:{attempt}"


def end_marked(job: str, attempt: int) -> int:
    """Kill what an attempt left behind whose keeper is gone; how many processes that were."""
    mark, ended = f"{MARK}={mark_of(job, attempt)}".encode(), 0
    for path in _PROC.glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                ended += 1
    return ended
