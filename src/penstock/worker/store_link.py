"""The link to the store: settles what ended, claims what is wanted, reconnects after an outage.

Losing the store is never the end. What could not be sent is kept and sent again; nothing is claimed
meanwhile, so what is kept stays bounded. Used by one thread, the worker's loop.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.values import Renewed, Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import Refused, StoreFull, StoreUnreachable
from penstock.job import Job, Outcome, State
from penstock.worker.claim_plan import Want
from penstock.worker.health import Health

Pair = tuple[Job[Any], Outcome]

_BAD = (Refused, ValueError, TypeError, OverflowError, msgspec.MsgspecError)
_LOST = (StoreFull, StoreUnreachable, OSError)
_TRIES = 3  # then one outcome may be what the store cannot take, and not the store itself
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LOG_EVERY = 60.0
# A claim whose answer never came may yet be carried out, when the store has woken up: what is held
# is compared again and again for a while, and now and then in any case.
_LATE_SECONDS = 60.0
_AGREE_SECONDS = 60.0

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class StoreLink:
    """Sends outcomes and requests; `retry_at` says when to try again after trouble."""

    def __init__(self, broker: Broker, health: Health) -> None:
        self.settled = 0
        self.stale = 0  # outcomes refused because the attempt no longer held its job
        self.retry_at = 0.0
        self.troubled = False
        self.agree_at = monotonic() + _AGREE_SECONDS  # when to compare what is held
        self._late_until = 0.0
        self._broker = broker
        self._health = health
        self._pause = _FIRST_PAUSE
        self._failures = 0
        self._resending = False
        self._said_at = -_LOG_EVERY
        self._announced = False  # that it does not answer, since it last did

    def exchange(
        self,
        pairs: Sequence[Pair],
        row: WorkerRow,
        queues: Collection[str] | None,
        want: Want | None,
    ) -> list[Job[Any]] | None:
        """Settle, and claim if something is wanted; None if the store did not take it."""
        try:
            if want is not None:
                wanted = Wanted(row, want.limit, queues, want.sizes)
                claimed = self._broker.claim([wanted], pairs)
                accepted, jobs = claimed.accepted, claimed.jobs[0]
                self._health.claimed()
            else:
                accepted, jobs = self._broker.settle(pairs), []
                self._health.answered()
        except Exception as error:
            if not pairs or not self._suspect(error):
                self.lost(error)
                return None
            try:
                accepted, jobs = self._one_by_one(pairs), []
            except Exception as again:
                self.lost(again)
                return None
        self._count(pairs, accepted)
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._resending = False
        return jobs

    def renew(self, row: WorkerRow, holding: Collection[str] | None = None) -> Renewed | None:
        """Keep the lease, and hear what was cancelled; with `holding`, agree on what is held."""
        try:
            renewed = self._broker.renew([row], holding)
        except Exception as error:
            self.lost(error)
            return None
        if holding is not None:
            now = monotonic()
            self.agree_at = now + (row.lease / 3 if now < self._late_until else _AGREE_SECONDS)
        if self.troubled:
            if self._announced:
                log.warning("the store answers again")
            self.troubled = self._announced = False
        if row.id in renewed.lapsed:
            log.warning("this worker was given up for dead; others may run what it held")
        return renewed

    def lost(self, error: BaseException) -> None:
        """The store did not do what was asked. Say so, once a minute, and pause."""
        now = monotonic()
        self._failures += 1
        self._resending = True
        self.troubled = True
        self._late_until = now + _LATE_SECONDS
        self.retry_at = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311  not a secret
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        if now - self._said_at >= _LOG_EVERY:
            self._said_at = now
            self._announced = True
            log.error(
                "the store does not answer, and is tried again: %s: %s", type(error).__name__, error
            )

    def _suspect(self, error: Exception) -> bool:
        """Whether one of the outcomes may be to blame."""
        if isinstance(error, _LOST):
            return False
        return isinstance(error, _BAD) or self._failures >= _TRIES

    def _one_by_one(self, pairs: Sequence[Pair]) -> list[bool]:
        accepted: list[bool] = []
        for job, outcome in pairs:
            try:
                accepted += self._broker.settle([(job, outcome)])
            except _LOST:
                raise
            except Exception as error:
                log.warning("job %s: its outcome cannot be stored: %s", job.id, error)
                accepted += self._broker.settle([(job, _unstorable(outcome, error))])
        return accepted

    def _count(self, pairs: Sequence[Pair], accepted: Sequence[bool]) -> None:
        self.settled += len(pairs)
        if all(accepted):
            return
        refused = [pair for pair, taken in zip(pairs, accepted, strict=True) if not taken]
        self.settled -= len(refused)
        if self._resending:
            return  # sent twice: the first time was taken, only its answer was lost
        self.stale += len(refused)
        for job, outcome in refused[:10]:
            log.info(
                "job %s: attempt %d no longer holds it, its outcome (%s) was refused",
                job.id,
                job.attempt,
                outcome.state,
            )


def _unstorable(outcome: Outcome, error: Exception) -> Outcome:
    return Outcome(
        State.FAILED,
        "unstorable",
        error=f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()[:4000],
        failures=1,
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
    )
