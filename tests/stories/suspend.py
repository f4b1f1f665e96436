"""Suspending processes that work on a store, between two writes to it.

SQLite gives its one lock to a process, not to a connection: a process that is suspended in the
middle of a write keeps it, and every other writer waits until it goes on (docs/guarantees.md).
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing

_TRIES = 200


def suspend(pids: Sequence[int], url: str) -> None:
    """Stop these processes, with no lock of the store in their hands."""
    for _ in range(_TRIES):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        if not url.startswith("sqlite:///") or _can_be_written(url.removeprefix("sqlite:///")):
            return
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError(f"{pids} held the lock of {url} each of {_TRIES} times")


def _can_be_written(file: str) -> bool:
    with closing(sqlite3.connect(file, timeout=0.3, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        connection.execute("rollback")
        return True
