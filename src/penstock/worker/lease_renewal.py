"""Renews the leases of a supervisor's children, on a thread of its own.

The supervisor does this and not the child: a job that never releases the interpreter cannot keep it
from renewing. A child renews too, once a second while jobs run, to learn of cancellations, and when
its supervisor is gone (`loop.py`). The keeper renews a detached job's lease (`detached/keeper.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from penstock.broker.call_deadline import CallDeadline
from penstock.broker.protocol import Broker
from penstock.broker.views import WorkerRow

_LOOK_SECONDS = 1.0  # until the next try after a renewal that failed, and to see another lease


class LeaseRenewal(threading.Thread):
    """Renews the rows that `rows` returns, every third of the lease, until `stop`.

    `lease` is asked every second: it may change while this runs.
    """

    def __init__(
        self,
        broker: Broker,
        lease: Callable[[], float],
        rows: Callable[[], Sequence[WorkerRow]],
        failed: Callable[[Exception], object],
        deadline: CallDeadline,
    ) -> None:
        super().__init__(name="penstock-heartbeat", daemon=True)
        self._broker = broker
        self._lease = lease
        self._rows = rows
        self._failed = failed
        self._deadline = deadline
        self._stopped = threading.Event()
        self.reaching_since: float | None = None  # monotonic; None: the last renewal failed

    def run(self) -> None:
        with self._deadline.within():
            self._renew_until_stopped()

    def _renew_until_stopped(self) -> None:
        renewed_at, every = time.monotonic(), self._lease() / 3
        while not self._stopped.wait(min(every, _LOOK_SECONDS)):
            try:
                every = self._lease() / 3
                if time.monotonic() < renewed_at + every:
                    continue
                if rows := self._rows():
                    self._broker.renew(rows)
                    self.reaching_since = self.reaching_since or time.monotonic()
                renewed_at = time.monotonic()
            except Exception as error:
                # A connection that went dead has cost a third of the lease already.
                self.reaching_since = None
                self._failed(error)

    def stop(self) -> None:
        self._stopped.set()
