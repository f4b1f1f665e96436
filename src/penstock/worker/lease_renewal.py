"""Renews the leases of a supervisor's children, on a thread of its own.

The supervisor does this and not the child: a job that never releases the interpreter cannot keep it
from renewing. A child renews too, once a second while jobs run, to learn of cancellations, and when
its supervisor is gone (`loop.py`). The keeper renews a detached job's lease (`detached/keeper.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from penstock.broker.protocol import Broker
from penstock.broker.views import WorkerRow

_RETRY_SECONDS = 1.0  # after a renewal that failed


class LeaseRenewal(threading.Thread):
    """Renews the rows that `rows` returns, every third of the lease, until `stop`."""

    def __init__(
        self,
        broker: Broker,
        lease: float,
        rows: Callable[[], Sequence[WorkerRow]],
        failed: Callable[[Exception], object],
    ) -> None:
        super().__init__(name="penstock-heartbeat", daemon=True)
        self._broker = broker
        self._every = lease / 3
        self._rows = rows
        self._failed = failed
        self._stopped = threading.Event()
        self.reaching_since: float | None = None  # monotonic; None: the last renewal failed

    def run(self) -> None:
        pause = self._every
        while not self._stopped.wait(pause):
            try:
                if rows := self._rows():
                    self._broker.renew(rows)
                    self.reaching_since = self.reaching_since or time.monotonic()
                pause = self._every
            except Exception as error:
                # A connection that went dead has cost a third of the lease already.
                pause = min(self._every, _RETRY_SECONDS)
                self.reaching_since = None
                self._failed(error)

    def stop(self) -> None:
        self._stopped.set()
