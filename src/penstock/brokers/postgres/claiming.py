"""Claim, with settlements on the way, and wait for something to claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from penstock.broker.values import Claimed, Settlement, Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.claim_round_trip import ClaimRoundTrips, LastOfNode
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.settling import PostgresSettlements
from penstock.brokers.postgres.store import PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.flow_needs import Place
from penstock.brokers.tables.worker_rows import expire
from penstock.job import Job

_MEMBERS = 16  # of fewer jobs of a node it is too likely that they are the last
_LOOKED_SECONDS = 2.5  # so long a look that found no lapsed worker stands for another


class PostgresClaims:
    """Claim, with the settlements that ride along; and settle, since that may let others start."""

    def __init__(self, store: PostgresStore, settlements: PostgresSettlements) -> None:
        self.store = store
        self.clock = store.clock
        self._settlements = settlements
        # The workers that introduced themselves, and when.
        self.registered: dict[str, tuple[WorkerRow, float]] = {}
        store.listener.workers = self.registered
        self.moved = False  # jobs, since the counts were folded
        self._limited = False
        self._ordered = False  # jobs that were taken here held keys back
        self._news_at = -1.0
        self._lapsed = True  # as far as is known, somebody's lease ran out

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        accepted: list[bool] = []
        taken: list[list[Job[Any]]] = []
        with self.store.lend(self.store.work_seconds) as connection:
            if not wanted and settlements:
                accepted, woken = self._settlements.settle_on(connection, settlements)
                self.store.notify_on(connection, woken)
            for each in wanted:
                claim = self._claim(connection, settlements, each)
                accepted = accepted or claim.accepted
                settlements = ()
                taken.append(claim.jobs)
        return Claimed(taken, accepted)

    def _claim(
        self, connection: Connection, pairs: Sequence[Settlement], wanted: Wanted
    ) -> ClaimRoundTrips:
        own = wanted.limit > 0 and bool(pairs) and pairs[0][0].worker == wanted.worker.id
        claim = self._exchange(connection, pairs, wanted) if own else None
        woken: Collection[int] = ()
        if claim is None:
            accepted, woken = self._settlements.settle_on(connection, pairs) if pairs else ([], ())
            # Made after that: what was freed is due from then on, and not before.
            claim = ClaimRoundTrips(self, connection, wanted)
            claim.accepted = accepted
        if wanted.limit > 0:
            claim.go_on()
        if woken:
            self.store.notify_on(connection, woken)
        self.moved = self.moved or bool(pairs or claim.jobs)
        self._limited = claim.limited if wanted.limit > 0 else self._limited
        self._ordered = self._ordered or claim.ordered
        if (self._limited and len(claim.jobs) < len(pairs)) or (
            self._ordered and _lines_of(pairs) - {(job.queue, job.key) for job in claim.jobs}
        ):
            # What ended made room, or let its key go, and that was not taken here.
            self.store.notify_on(connection, {job.lane.hash for job, _ in pairs})
        return claim

    def _exchange(
        self, connection: Connection, pairs: Sequence[Settlement], wanted: Wanted
    ) -> ClaimRoundTrips | None:
        """Settle and begin to claim, in one round trip; None if these cannot be settled so."""
        place: Place | None = None
        settled = self._settlements.successes(pairs)
        if settled is None and len(pairs) >= _MEMBERS:
            place, settled = self._settlements.members(pairs)
        if settled is None:
            return None
        claim = ClaimRoundTrips(self, connection, wanted)
        try:
            claim.exchange(settled, place)
        except LastOfNode:
            return None
        return claim

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        accepted = self._settlements.settle(pairs)
        self.moved = self.moved or bool(pairs)
        if pairs and (self._limited or (self._ordered and _lines_of(pairs))):
            self.store.notify()
        return accepted

    def heard_news(self, news: str, now: float) -> None:
        """What a look or a claim found on its way, besides jobs."""
        self._news_at = now
        self._lapsed = "lapsed" in news
        if "expired" in news:
            with self.store.writing() as db:
                change = Change(self.store, db, now)
                expire(change)
                change.finish()
            change.after_commit()

    def nobody_lapsed(self) -> bool:
        """Whether a claim or a look found just now that no worker's lease had run out."""
        fresh = 0 <= self.clock.now() - self._news_at < _LOOKED_SECONDS
        return fresh and not self._lapsed

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        due = self.store.claimable.next_due
        due_in = None if due is None else due - self.clock.now()
        hint, lanes = self.store.listener.wait(queues, timeout, due_in, self.store.lanes.get)
        if hint:
            self.store.forget_claimable(lanes)
        return hint


def _lines_of(pairs: Sequence[Settlement]) -> set[tuple[str, str | None]]:
    return {(job.queue, job.key) for job, _ in pairs if job.key is not None}
