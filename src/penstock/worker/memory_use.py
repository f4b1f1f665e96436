"""How much memory a process uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


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
