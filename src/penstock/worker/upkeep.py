"""Upkeep: the chores that keep a store going, done by whichever worker comes first.

Recover, prune, gauges, and the slots of schedules. There is no scheduler and no leader: every
worker calls `turn` often, and it does what is due. All of it may be done twice, by two workers at
once, without harm. Pruning may take minutes, and has a thread of its own: the worker claims,
settles and renews meanwhile.
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

PRUNE_EVERY = 3600.0
PRUNE_AGAIN = 60.0  # after one that failed
TURN_SECONDS = (
    0.25  # for slots, of which a thousand may be due at once; then jobs are claimed again
)

log = logging.getLogger("penstock.worker")


def _no_schedules() -> Mapping[str, Schedule]:
    return {}


class Upkeep:
    """Recovers what dead workers held, every third of a lease, gauges once a minute, and prunes.

    `declared` are the schedules of this worker's own code; slots are decided when they are due.
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
        sending: Sending = nullcontext,
    ) -> None:
        self.retention = retention  # None: nothing is ever forgotten
        self._broker = broker
        self._clock = clock
        self._worker_id = worker_id
        self._recover_every = lease / 3
        now = clock.monotonic()
        self._recover_at = now
        # Not at the start: a fleet that is deployed would prune all at once.
        self._prune_at = now + PRUNE_EVERY
        # Not all at once: each worker has its own second of the minute to look.
        self._gauge_phase = zlib.crc32(worker_id.encode()) % 50
        self._gauge_at = now + self._to_gauge()
        self._pruning: threading.Thread | None = None
        self._timetable = Timetable(broker, clock, declared, worker_id, sending)

    def turn(self) -> int:
        """Do what is due; returns how many jobs were recovered."""
        now = self._clock.monotonic()
        recovered = 0
        if now >= self._recover_at:
            recovered = self._broker.recover(by=self._worker_id)
            self._recover_at = now + self._recover_every
            if recovered:
                log.warning("recovered %d jobs of workers that are gone", recovered)
        if now >= self._gauge_at:
            self._gauge_at = now + self._to_gauge()
            self._gauge()
        if self.retention is not None and now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            if self._pruning is None or not self._pruning.is_alive():
                self._pruning = threading.Thread(
                    target=self._prune, args=(self.retention,), name="penstock-prune", daemon=True
                )
                self._pruning.start()
        self._timetable.turn(TURN_SECONDS)
        return recovered

    def seconds_left(self) -> float:
        """How long no slot of a schedule is due."""
        return self._timetable.seconds_left()

    def _gauge(self) -> None:
        try:
            self._broker.gauge()
        except PenstockError as error:  # jobs matter more; there is another minute
            log.warning("this minute has no gauges: %s", error)

    def _to_gauge(self) -> float:
        return MINUTE - (self._clock.now() - self._gauge_phase) % MINUTE

    def close(self, patience: float) -> None:
        """Wait so long for a prune under way; one that is cut short goes on another time."""
        if self._pruning is not None:
            self._pruning.join(patience)

    def _prune(self, retention: float) -> None:
        try:
            pruned = self._broker.prune(self._clock.now() - retention)
        except Exception as error:
            self._prune_at = self._clock.monotonic() + PRUNE_AGAIN
            log.warning("pruning is tried again later: %s: %s", type(error).__name__, error)
            return
        log.info("pruned %d rows older than %.0f days", pruned, retention / 86400)
