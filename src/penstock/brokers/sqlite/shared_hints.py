"""Hints in memory that all processes of a file share, by a small mapped file beside it.

The version of the rules, which a worker reads before every start (0.1 us; a read of the database
costs 3 us and a lock), and when a process last waited for the write lock.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from pathlib import Path

from penstock.app.private_files import open_regular
from penstock.errors import Refused

_POLITE_NANOSECONDS = 2_000_000
_RULES, _WAITING, _BYTES = slice(0, 8), slice(8, 16), 16


class SharedHints:
    """The mapped file; where it cannot be made, there are no hints."""

    def __init__(self, store: Path) -> None:
        self._mapped = _mapped(store)

    def rules_version(self) -> int:
        return int.from_bytes(self._mapped[_RULES], "big") if self._mapped else 0

    def rules_changed(self) -> None:
        # A random number and not the next one: two processes that count on at once would write the
        # same number, and a reader between them would miss the second change.
        if self._mapped:
            self._mapped[_RULES] = os.urandom(8)

    def somebody_waits(self) -> bool:
        """Whether another process waited for the write lock a moment ago."""
        if not self._mapped:
            return False
        waited_at = int.from_bytes(self._mapped[_WAITING], "big")
        return time.monotonic_ns() - waited_at < _POLITE_NANOSECONDS

    def waits(self) -> None:
        if self._mapped:
            self._mapped[_WAITING] = time.monotonic_ns().to_bytes(8, "big")

    def waits_no_more(self) -> None:
        if self._mapped:
            self._mapped[_WAITING] = bytes(8)

    def close(self) -> None:
        if self._mapped:
            self._mapped.close()
            self._mapped = None


def _mapped(store: Path) -> mmap.mmap | None:
    try:
        number = open_regular(f"{store}-rules", os.O_RDWR | os.O_CREAT, single=True)
    except (OSError, Refused):
        return None
    try:
        with contextlib.suppress(OSError):  # another user's, who did this
            # Every user of the store must be able to map it.
            os.fchmod(number, stat.S_IMODE(store.stat().st_mode))
        if os.fstat(number).st_size < _BYTES:
            os.ftruncate(number, _BYTES)
        return mmap.mmap(number, _BYTES)
    finally:
        os.close(number)
