"""Limits on the memory and CPU time of a detached job, with all the processes that it starts.

Measured from outside, once a second, over the whole process tree: the kernel's own limits hold for
single processes, and creating control groups needs rights that a worker may not have.
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
    """What a task allows its jobs; None: no limit."""

    memory: int | None = None  # bytes
    cpu: float | None = None  # seconds

    @classmethod
    def of(cls, task: Any) -> ProcessLimits:
        return cls(task.max_memory, task.max_cpu)

    def exceeded(self, root: int) -> str | None:
        """Which limit the descendants of this process exceed, in a sentence; None: none."""
        if self.memory is None and self.cpu is None:
            return None
        pids = descendants(root)
        memory = sum(memory_of(pid) for pid in pids)
        if self.memory is not None and memory > self.memory:
            return f"it held {memory >> 20} MB, more than its max_memory of {self.memory >> 20}"
        cpu = sum(map(cpu_of, pids)) + _cpu_of_reaped(root)
        if self.cpu is not None and cpu > self.cpu:
            return f"it used {cpu:.0f} s of CPU time, more than its max_cpu of {self.cpu:g}"
        return None


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    return _ticks(pid, slice(11, 15)) / _TICKS


def _cpu_of_reaped(root: int) -> float:
    """CPU seconds of processes that outlived their parents and were reaped by `root`."""
    return _ticks(root, slice(13, 15)) / _TICKS


def _ticks(pid: int, columns: slice) -> int:
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[columns]))
    return 0
