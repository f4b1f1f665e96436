"""The worker's calls to the store: settle, claim, renew; and trying again after an outage.

A worker outlives every outage of its store; one whose login may not even claim ends. Outcomes that
could not be stored are kept and sent again; nothing is claimed meanwhile, so their number stays
bounded. Used by the loop's thread alone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.values import Renewed, Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import MissingRight, Refused, StoreFull, StoreUnreachable
from penstock.job import Job, Outcome, State
from penstock.worker.claim_plan import ClaimRequest
from penstock.worker.health import Health
from penstock.worker.outage_log import OutageLog
from penstock.worker.put_backs import PutBacks

Pair = tuple[Job[Any], Outcome]

_BAD_VALUE = (Refused, ValueError, TypeError, OverflowError, msgspec.MsgspecError)
_OUTAGE = (StoreFull, StoreUnreachable, MissingRight, OSError)
_TRIES = 3  # then an outcome may be what the store cannot take
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_MOST_STALE_LINES = 10
# A claim whose answer was lost may still be carried out later. So what this worker holds is
# compared with the store often for a while after an outage, and once a minute in any case.
_LATE_SECONDS = 60.0
_COMPARE_SECONDS = 60.0

log = logging.getLogger("penstock.worker")
monotonic = time.monotonic


class StoreCalls:
    """Settles, claims and renews; after a failure, not before `retry_at`."""

    def __init__(
        self,
        broker: Broker,
        health: Health,
        settled: Callable[[Sequence[Pair]], object] = lambda _: None,
    ) -> None:
        self.settled = 0
        self.put_backs = PutBacks()
        self.stale = 0  # outcomes refused because a later attempt holds the job
        self._due_at: float | None = None  # when to claim without a hint, by the store's clock
        self.retry_at = 0.0
        self.unreachable = False
        self.compare_at = (
            monotonic() + _COMPARE_SECONDS
        )  # when to compare what is held with the store
        self._late_until = 0.0
        self._broker = broker
        self._health = health
        self._settled = settled  # called with the outcomes that were accepted
        self._pause = _FIRST_PAUSE
        self._failures = 0
        self._has_claimed = False  # so its login has the rights of a worker
        self._resending = False
        self.left: list[Pair] = []  # of the last exchange: outcomes whose server is away
        self._outage = OutageLog("tried again; jobs that run go on, nothing new is claimed")
        self._outage_logged = False

    def exchange(
        self,
        pairs: Sequence[Pair],
        row: WorkerRow,
        queues: Collection[str] | None,
        request: ClaimRequest | None,
    ) -> list[Job[Any]] | None:
        """Settle these pairs, and claim if there is a request; None if the store failed."""
        try:
            if request is not None:
                wanted = Wanted(row, request.limit, queues, request.sizes)
                claimed = self._broker.claim([wanted], pairs)
                accepted, jobs = claimed.accepted, claimed.jobs[0]
                if (at := claimed.next_at) is not None:
                    self._due_at = at if self._due_at is None else min(at, self._due_at)
                self._health.claimed()
                self._has_claimed = True
            else:
                accepted, jobs = self._broker.settle(pairs), []
                self._health.answered()
        except Exception as error:
            if not pairs or not self._blames_an_outcome(error):
                self.failed(error)
                return None
            try:
                accepted, jobs = self._one_by_one(pairs), []
            except Exception as again:
                self.failed(again)
                return None
        self.left = [pair for pair, taken in zip(pairs, accepted, strict=True) if taken is None]
        self._count(pairs, accepted)
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._resending = False
        return jobs

    @property
    def due_in(self) -> float | None:
        """Seconds until a claim is worth making although no hint came."""
        return None if self._due_at is None else self._due_at - self._broker.clock.now()

    def fell_due(self) -> bool:
        """Whether that time has come; then the next claim answers which one follows."""
        due = self.due_in is not None and self.due_in <= 0
        if due:
            self._due_at = None
        return due

    def _accepted(self, pairs: Sequence[Pair]) -> None:
        if pairs:
            self.put_backs.count(pairs)
            self._settled(pairs)

    def renew(self, row: WorkerRow, holding: Collection[str] | None = None) -> Renewed | None:
        """Renew the lease and learn what was cancelled; None if the store failed.

        With `holding`, jobs that the store counts as held by this worker, and that are not among
        these, are put back.
        """
        try:
            renewed = self._broker.renew([row], holding)
        except Exception as error:
            self.failed(error)
            return None
        self._health.reached()
        if holding is not None:
            now = monotonic()
            self.compare_at = now + (row.lease / 3 if now < self._late_until else _COMPARE_SECONDS)
        if self.unreachable:
            if self._outage_logged:
                log.warning("the store answers again: claiming goes on")
            self.unreachable = self._outage_logged = False
        if row.id in renewed.lapsed:
            log.warning(
                "the lease of worker %s had ended: other workers may run what it held, and its own "
                "outcomes of those jobs are refused",
                row.id,
            )
        return renewed

    def failed(self, error: BaseException) -> None:
        """The store failed: log it, once a minute, and pause before the next call.

        Raised instead if this login lacks a right from the start: waiting does not help.
        """
        if isinstance(error, MissingRight) and not self._has_claimed:
            raise error
        now = monotonic()
        self._failures += 1
        self._resending = True
        self.unreachable = True
        self._late_until = now + _LATE_SECONDS
        self.retry_at = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311  not a secret
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        self._outage_logged = self._outage.log(error) or self._outage_logged

    def _blames_an_outcome(self, error: Exception) -> bool:
        """Whether the store may be fine, and one of the outcomes cannot be stored."""
        if isinstance(error, _OUTAGE):
            return False
        return isinstance(error, _BAD_VALUE) or self._failures >= _TRIES

    def _one_by_one(self, pairs: Sequence[Pair]) -> list[bool | None]:
        accepted: list[bool | None] = []
        for job, outcome in pairs:
            try:
                accepted += self._broker.settle([(job, outcome)])
            except _OUTAGE:
                raise
            except Exception as error:
                log.warning(
                    "job %s: its outcome cannot be stored, so it ends as failed: %s", job.id, error
                )
                accepted += self._broker.settle([(job, _unstorable(outcome, error))])
        return accepted

    def _count(self, pairs: Sequence[Pair], accepted: Sequence[bool | None]) -> None:
        self.settled += len(pairs) - len(self.left)
        if all(accepted):
            self._accepted(pairs)
            return
        self._accepted([pair for pair, taken in zip(pairs, accepted, strict=True) if taken])
        refused = [pair for pair, taken in zip(pairs, accepted, strict=True) if taken is False]
        self.settled -= len(refused)
        if self._resending:
            return  # sent twice: the first call was carried out, only its answer was lost
        self.stale += len(refused)
        for job, outcome in refused[:_MOST_STALE_LINES]:
            log.info(
                "job %s: the outcome of attempt %d (%s) was refused: a later attempt has the job",
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
