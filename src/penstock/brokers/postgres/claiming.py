"""Work: claims, settling on the way, and waiting for something to claim."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.claim_round_trip import ClaimRequest, LastOfNode, Taking
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.settling import Pair, PostgresSettling
from penstock.brokers.postgres.store import in_our_words
from penstock.brokers.postgres.transaction import PostgresTransaction
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.flow_needs import Place
from penstock.job import Job

_MEMBERS = 16  # of fewer jobs of a node it is too likely that they are the last
_LOOKED_SECONDS = 2.5  # so long a look that found no lapsed worker stands for another


class PostgresClaiming(PostgresSettling):
    """Claim, settle and claim, wait, begin."""

    apart = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.registered: dict[str, tuple[WorkerRow, float]] = {}
        self.ear.workers = self.registered
        self.ear.told = self.offers.hear
        self.moved = False  # jobs, since the counts were folded
        self.limited = False
        self.ordered = False  # jobs that were taken here held keys back
        self._news_at = -1.0
        self._lapsed = True  # as far as is known, somebody's lease ran out

    def claim(
        self,
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> list[Job[Any]]:
        return self.settle_and_claim((), worker, queues, limit, sizes)[1]

    def settle_and_claim(
        self,
        pairs: Sequence[Pair],
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> tuple[list[bool], list[Job[Any]]]:
        with self.store.lend(self.store.work_seconds) as connection:
            wanted = ClaimRequest(worker, queues, limit, sizes)
            own = limit > 0 and bool(pairs) and pairs[0][0].worker == worker.id
            claim = self._exchange(connection, pairs, wanted) if own else None
            woken: Collection[int] = ()
            if claim is None:
                accepted, woken = self.settle_on(connection, pairs) if pairs else ([], ())
                # Made after that: what was freed is due from then on, and not before.
                claim = Taking(self, connection, wanted)
                claim.accepted = accepted
            if limit > 0:
                claim.go_on()
            if woken:
                self.store.ring(connection, woken)
            self.moved = self.moved or bool(pairs or claim.jobs)
            self.limited = claim.limited if limit > 0 else self.limited
            self.ordered = self.ordered or claim.ordered
            if (self.limited and len(claim.jobs) < len(pairs)) or (
                self.ordered and _lines_of(pairs) - {(job.queue, job.key) for job in claim.jobs}
            ):
                # What ended made room, or let its key go, and that was not taken here.
                self.store.ring(connection, {job.lane.hash for job, _ in pairs})
            return claim.accepted, claim.jobs

    def _exchange(
        self, connection: Connection, pairs: Sequence[Pair], wanted: ClaimRequest
    ) -> Taking | None:
        """Settle and begin to claim, in one round trip; None if these cannot be settled so."""
        place: Place | None = None
        settled = self.successes(pairs)
        if settled is None and len(pairs) >= _MEMBERS:
            place, settled = self.members(pairs)
        if settled is None:
            return None
        claim = Taking(self, connection, wanted)
        try:
            claim.exchange(settled, place)
        except LastOfNode:
            return None
        return claim

    def settle(self, pairs: Sequence[Pair]) -> list[bool]:
        accepted = super().settle(pairs)
        if pairs and (self.limited or (self.ordered and _lines_of(pairs))):
            self._ring()
        return accepted

    def heard_news(self, news: str, now: float) -> None:
        """What a look or a claim found on its way, besides jobs."""
        self._news_at = now
        self._lapsed = "lapsed" in news
        if "expired" in news:
            with self.store.writing() as db:
                change = Change(self.store, db, now)
                self._expire(change)
                change.finish()
            self._tell(change)

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        now = self.clock.now()
        fresh = 0 <= now - self._news_at < _LOOKED_SECONDS
        if dead is None and by is not None and fresh and not self._lapsed:
            return 0
        return super().recover(by, dead, started)

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        due = self.offers.next_due
        due_in = None if due is None else due - self.clock.now()
        hint, lanes = self.ear.wait(queues, timeout, due_in, self.store.lanes.get)
        if hint:
            self.offers.forget(lanes)
        return hint

    def wake(self) -> None:
        self.ear.ring()

    def rules_version(self) -> int:
        ear = self.ear
        if ear.hears:  # asked before every job
            return ear.heard
        ear.listen()
        return ear.rules

    def begin(self) -> PostgresTransaction:
        with in_our_words(self.store.where):
            return PostgresTransaction(self.store, self._settle, self._tell)


def _lines_of(pairs: Sequence[Pair]) -> set[tuple[str, str | None]]:
    return {(job.queue, job.key) for job, _ in pairs if job.key is not None}
