"""What every task leaves behind, the same for all peers: that it ran, and when it began.

Files that are mapped into memory: a mark costs a tenth of a microsecond, outlives kill -9 of the
process that made it, and is read by the runner without asking any store.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from struct import Struct

MOST_JOBS = 1_000_000  # bytes in `ran`; a number of a job is its place
MOST_TIMES = 10_000  # places in `began`
TIME = Struct("d")
LAST = MOST_TIMES - 1  # the place of a fan-in


def make(folder: Path) -> None:
    """Empty files, for whoever reads and writes them next."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ran").write_bytes(bytes(MOST_JOBS))
    (folder / "began").write_bytes(bytes(MOST_TIMES * TIME.size))
    (folder / "arrived").write_bytes(b"")


class Marks:
    """The marks in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ran = _mapped(folder / "ran")
        self._began = _mapped(folder / "began")
        self._arrived = False
        os.register_at_fork(after_in_child=self._leave)

    def ran(self, number: int) -> None:
        """Job `number` ran, once more."""
        if not self._arrived:
            self._arrive()
        self._ran[number] = min(self._ran[number] + 1, 255)

    def began(self, number: int) -> None:
        """Job `number` begins now, by the clock that all processes of a machine share."""
        TIME.pack_into(self._began, TIME.size * number, time.monotonic())

    def clear(self) -> None:
        """Forget everything, while no worker runs."""
        self._ran[:] = bytes(len(self._ran))
        self._began[:] = bytes(len(self._began))
        os.truncate(self._folder / "arrived", 0)

    def times_ran(self, count: int) -> bytes:
        """One byte for each of the first `count` jobs: how often it ran."""
        return self._ran[:count]

    def ran_of(self, count: int) -> int:
        """How many of the first `count` jobs ran."""
        return count - self._ran[:count].count(0)

    def time_of(self, number: int) -> float:
        """When job `number` began; 0 before that."""
        return TIME.unpack_from(self._began, TIME.size * number)[0]

    def processes(self) -> int:
        """How many processes have run a job."""
        return (self._folder / "arrived").stat().st_size

    def _arrive(self) -> None:
        self._arrived = True
        with (self._folder / "arrived").open("ab") as file:
            file.write(b".")

    def _leave(self) -> None:
        self._arrived = False


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)
