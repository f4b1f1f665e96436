"""How much memory and processor time a detached job may use, with all that it starts.

Watched from outside, once a second, for the whole tree: limits of the kernel are for one process
each, and control groups are not everybody's to make.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from penstock.worker.detached.processes import descendants
from penstock.worker.memory_use import memory_of

_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessLimits(NamedTuple):
    """What a task allows its jobs; None is any amount."""

    memory: int | None = None  # bytes
    cpu: float | None = None  # seconds

    @classmethod
    def of(cls, task: Any) -> ProcessLimits:
        return cls(task.max_memory, task.max_cpu)

    def exceeded(self, root: int) -> str | None:
        """What the descendants of this process use too much of, in a sentence; None: nothing."""
        if self.memory is None and self.cpu is None:
            return None
        pids = descendants(root)
        memory = sum(memory_of(pid) for pid in pids)
        if self.memory is not None and memory > self.memory:
            return f"it held {memory >> 20} MB, more than its max_memory of {self.memory >> 20}"
        cpu = sum(map(cpu_of, pids)) + _cpu_of_strays(root)
        if self.cpu is not None and cpu > self.cpu:
            return f"it used {cpu:.0f} s of processor time, more than its max_cpu of {self.cpu:g}"
        return None


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process, and of those that it waited for."""
    return _ticks(pid, slice(11, 15)) / _TICKS


def _cpu_of_strays(root: int) -> float:
    """Of those that outlived their parents, and have ended since: they are in nobody's count."""
    return _ticks(root, slice(13, 15)) / _TICKS


def _ticks(pid: int, fields: slice) -> int:
    with suppress(OSError, ValueError, IndexError):
        found = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, found[fields]))
    return 0
