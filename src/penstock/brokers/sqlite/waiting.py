"""Wait for something to claim: each thread that waits owns a socket, see `wake`."""

from __future__ import annotations

import threading
from collections.abc import Collection

from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.sqlite.wake import Waiter


class SqliteWaiting:
    """Wait and wake; and close, because every waiting thread has a socket."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._waiters: dict[int, Waiter] = {}

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        del queues  # a hint names no queue: a claim that finds nothing costs 20 us
        me = threading.get_ident()
        if me not in self._waiters:
            self._waiters[me] = Waiter(self.store.wake_sender.folder, self.store.data_version)
        return self._waiters[me].wait(timeout)

    def wake(self) -> None:
        for waiter in list(self._waiters.values()):
            waiter.wake()

    def close(self) -> None:
        for waiter in self._waiters.values():
            waiter.close()
        self._waiters.clear()
        self.store.close_connections()
