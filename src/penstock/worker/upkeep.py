"""Upkeep: the chores that keep a store going, done by whichever worker comes first.

Recover, prune, gauges, and the slots of schedules. There is no leader: every worker calls `run_due`
often, and two that do the same chore at once do no harm. Pruning may take minutes, so it has a
thread of its own: the worker claims, settles and renews meanwhile.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from penstock.app.clock import AnyClock
from penstock.broker.gauge import MINUTE
from penstock.broker.protocol import Broker
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import LEASE_SECONDS
from penstock.errors import PenstockError
from penstock.schedules.schedule import Schedule
from penstock.schedules.timetable import Sending, Timetable

RECOVER_SECONDS = 1.5  # at most between two: a lease that ran out is noticed within two seconds
PRUNE_EVERY = 3600.0
PRUNE_AGAIN = 60.0  # after one that failed
SLOTS_SECONDS = 0.25  # at a time: a thousand slots may be due at once, and jobs wait meanwhile

log = logging.getLogger("penstock.worker")


def _no_schedules() -> Mapping[str, Schedule]:
    return {}


class Upkeep:
    """Recovers jobs of dead workers every 1.5 s, gauges every minute, prunes hourly.

    `declared` returns the schedules of this worker's code; slots are decided when they are due.
    `subscribe` puts its subscriptions, once.
    """

    def __init__(
        self,
        broker: Broker,
        clock: AnyClock,
        worker_id: str,
        retention: float | None = RETENTION_SECONDS,
        lease: float = LEASE_SECONDS,
        *,
        declared: Callable[[], Mapping[str, Schedule]] = _no_schedules,
        subscribe: Callable[[], object] = _no_schedules,
        sending: Sending = nullcontext,
    ) -> None:
        self.retention = retention  # None: nothing is ever forgotten
        self._broker = broker
        self._clock = clock
        self._worker_id = worker_id
        self.every = min(lease / 3, RECOVER_SECONDS)
        now = clock.monotonic()
        self._recover_at = now
        # Not at the start: a fleet that is deployed would prune all at once.
        self._prune_at = now + PRUNE_EVERY
        # Each worker has its own second of the minute, so that they do not gauge all at once.
        self._gauge_phase = zlib.crc32(worker_id.encode()) % 50
        self._gauge_at = now + self._until_gauge()
        self._pruning: threading.Thread | None = None
        self._subscribe = subscribe
        self._timetable = Timetable(broker, clock, declared, worker_id, sending)

    def run_due(self) -> int:
        """Do what is due; returns how many jobs were recovered."""
        now = self._clock.monotonic()
        recovered = 0
        if now >= self._recover_at:
            recovered = self._broker.recover(by=self._worker_id)
            self._recover_at = now + self.every
            if recovered:
                log.warning(
                    "recovered %d jobs of workers whose lease ended: they are ready again",
                    recovered,
                )
        if now >= self._gauge_at:
            self._gauge_at = now + self._until_gauge()
            self._gauge()
        if self.retention is not None and now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            if self._pruning is None or not self._pruning.is_alive():
                self._pruning = threading.Thread(
                    target=self._prune, args=(self.retention,), name="penstock-prune", daemon=True
                )
                self._pruning.start()
        self._subscribe()
        self._timetable.turn(SLOTS_SECONDS)
        return recovered

    def seconds_left(self) -> float:
        """Seconds until the next slot of a schedule is due."""
        return self._timetable.seconds_left()

    def _gauge(self) -> None:
        try:
            self._broker.gauge()
        except PenstockError as error:  # no reason to stop claiming
            log.warning(
                "the gauges of this minute were not stored, the next minute's will be: %s", error
            )

    def _until_gauge(self) -> float:
        return MINUTE - (self._clock.now() - self._gauge_phase) % MINUTE

    def close(self, timeout: float) -> None:
        """Wait this long for a prune under way; an unfinished one is continued by a later prune."""
        if self._pruning is not None:
            self._pruning.join(timeout)

    def _prune(self, retention: float) -> None:
        try:
            pruned = self._broker.prune(self._clock.now() - retention)
        except Exception as error:
            self._prune_at = self._clock.monotonic() + PRUNE_AGAIN
            log.warning(
                "pruning failed and is tried again in %g s: %s: %s",
                PRUNE_AGAIN,
                type(error).__name__,
                error,
            )
            return
        log.info("pruned %d rows older than %.0f days", pruned, retention / 86400)
