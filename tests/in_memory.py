"""The files of a test run are in memory, where the machine has room for them.

No test needs its files after a power failure, and on a disk they cost: copying a PostgreSQL store
takes 150 ms of CPU time there, and 15 ms in memory. Whoever sets TMPDIR has them in that folder.
So is the state folder of the workers that tests start: nothing is left in that of the user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  # what a run takes at most, and as much again for what runs
_AVAILABLE = "MemAvailable:"
_STATE = "XDG_STATE_HOME"
_made: list[str] = []


def pytest_configure() -> None:
    """Before the first of them is made; test processes of xdist and nested runs inherit it."""
    if "TMPDIR" not in os.environ and fits(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # which is looked up again
    if _STATE not in os.environ:
        os.environ[_STATE] = tempfile.mkdtemp(prefix="penstock-state-")
        _made.append(os.environ[_STATE])


def pytest_unconfigure() -> None:
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
        del os.environ[_STATE]


def fits(folder: Path) -> bool:
    """Whether there is room, and programs in it may be run: some tests write such."""
    try:
        figures = Path("/proc/meminfo").read_text(encoding="ascii").split()
        kilobytes = int(figures[figures.index(_AVAILABLE) + 1])
        return (
            kilobytes >= 2 * _ROOM >> 10
            and shutil.disk_usage(folder).free >= _ROOM
            and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        )
    except (OSError, ValueError):  # another system, or a kernel that does not say
        return False
