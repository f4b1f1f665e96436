"""The slots of this host's children as files: what is left of a group that was killed at once.

    <state folder>/<store>/workers/<worker id>    see `running_slots.py`

A child and its supervisor sign their file. If both have ended, nobody will report what the child
held: whoever finds the file does, with the jobs that had begun. A process of another host, boot or
namespace of process ids cannot be looked at from here: its lease decides, and only its old file is
removed. The folder belongs to this user alone, and no link in it is followed: see `private_files`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from penstock.app.private_files import open_own, private_folder
from penstock.errors import Refused
from penstock.worker.detached.state_folder import SETTING, state_folder
from penstock.worker.running_slots import HeldJob, RunningSlots, SlotsOwner

_FOREIGN_SECONDS = 86400.0  # a file of another host that was not written to for so long is removed

log = logging.getLogger("penstock.worker")


class LeftBehind(NamedTuple):
    """A worker whose child and supervisor have ended, and what the child was running."""

    worker: str
    held: list[HeldJob]


class SlotsFiles:
    """The files of one store's children on this host."""

    def __init__(self, url: str) -> None:
        self.path = state_folder(url) / "workers"
        self._logged = False

    def make(self, worker: str, count: int) -> RunningSlots:
        """New slots in a file, signed by this process; in memory if there can be no file."""
        try:
            slots = self._make_file(worker, count)
        except (OSError, Refused) as error:
            if not self._logged:
                log.warning(
                    "the state folder cannot be used: %s; if this worker and its children are "
                    "killed at once, their jobs are ready again when the lease has ended",
                    error,
                )
            self._logged = True
            slots = RunningSlots.make(count)
        slots.sign(SlotsOwner.SUPERVISOR)
        return slots

    def _make_file(self, worker: str, count: int) -> RunningSlots:
        with private_folder(self.path, f"let {SETTING} name another one") as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            file = open_own(worker, flags, folder, shown=str(self.path / worker))
            try:
                return RunningSlots.make(count, file)
            except BaseException:
                os.unlink(worker, dir_fd=folder)
                raise

    def remove(self, worker: str) -> None:
        with suppress(OSError):
            (self.path / worker).unlink(missing_ok=True)

    def left_behind(self, known: Collection[str]) -> list[LeftBehind]:
        """The workers of dead processes of this host, without those that are `known`."""
        found: list[LeftBehind] = []
        with suppress(OSError, Refused), private_folder(self.path, "", make=False) as folder:
            for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                if name not in known:
                    with suppress(OSError, Refused):
                        self._look(name, folder, found)
        return found

    def _look(self, name: str, folder: int, found: list[LeftBehind]) -> None:
        file = open_own(name, os.O_RDWR, folder)
        untouched = time.time() - os.fstat(file).st_mtime
        slots = RunningSlots.read(file)
        processes = [] if slots is None else slots.signed()
        try:
            if slots is not None and processes and all(process.dead for process in processes):
                found.append(LeftBehind(name, slots.held()))
            elif untouched > _FOREIGN_SECONDS and not any(process.alive for process in processes):
                os.unlink(name, dir_fd=folder)
        finally:
            if slots is not None:
                slots.close()
