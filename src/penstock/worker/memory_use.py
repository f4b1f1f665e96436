"""How much memory a process uses, and whether the kernel killed one for lack of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


def memory_of(pid: int | None = None) -> int:
    """Resident bytes of a process, this one by default; 0 if unknown.

    Without /proc only for this process, and then its peak.
    """
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * _PAGE
    except (OSError, ValueError, IndexError):
        pass
    if pid is not None:
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def out_of_memory_kills(own: Path = _OWN_CGROUPS, root: Path = _CGROUPS) -> int | None:
    """How many processes of this cgroup the kernel has killed for lack of memory, if known.

    `own` lists the cgroups of this process, `root` is where they are mounted. Version 2 and 1.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            events = root / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            events = root / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        try:
            counts = dict(row.split() for row in events.read_text(encoding="ascii").splitlines())
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue  # on a system with both versions, memory belongs to one of them
    return None
