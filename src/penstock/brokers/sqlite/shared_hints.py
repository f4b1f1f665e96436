"""What the processes of a file share beside it, in memory: hints that a look at the file confirms.

The version of the rules, so that a worker can look at it before every start (asking the database
costs 3 us and a lock, this 0.1 us); and when somebody last waited for the write lock.
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
    """A small mapped file next to the store; without one, every hint says nothing."""

    def __init__(self, store: Path) -> None:
        self._mapped = _mapped(store)

    def rules_version(self) -> int:
        return _number(self._mapped[_RULES]) if self._mapped else 0

    def rules_changed(self) -> None:
        # A random number and not the next one: two processes that count on at once would write the
        # same number, and a reader between them would miss the second change.
        if self._mapped:
            self._mapped[_RULES] = os.urandom(8)

    def somebody_waits(self) -> bool:
        """Whether another process waited for the write lock a moment ago."""
        if not self._mapped:
            return False
        return time.monotonic_ns() - _number(self._mapped[_WAITING]) < _POLITE_NANOSECONDS

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
            # Whoever may use the store has to hear of its rules.
            os.fchmod(number, stat.S_IMODE(store.stat().st_mode))
        if os.fstat(number).st_size < _BYTES:
            os.ftruncate(number, _BYTES)
        return mmap.mmap(number, _BYTES)
    finally:
        os.close(number)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
