"""A process that does something to a SQLite store and dies before its n-th statement.

Of dozens of deaths in one verb most leave the same behind: what has the same `content` need not be
looked at, or worked off, a second time.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from penstock.app.clock import AnyClock
from penstock.brokers.sqlite import SqliteBroker


def act(path: Path, clock: AnyClock, verb: Callable[[SqliteBroker], object], die_at: int) -> int:
    """Do it in a process of its own that dies before its n-th statement; how it ended."""
    child = os.fork()
    if not child:
        try:
            broker = SqliteBroker(path, clock=clock)
            seen = 0

            def count(_: str) -> None:
                nonlocal seen
                seen += 1
                if seen == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            broker.store._writer.set_trace_callback(count)
            verb(broker)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def content(path: Path) -> list[str]:
    """All that is in the file, as whoever opens it next would find it."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        return list(connection.iterdump())
