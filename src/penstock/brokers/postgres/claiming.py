"""Claim, together with settlements; settle; and wait for something to claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from penstock.broker.move import planned_epoch
from penstock.broker.values import Claimed, Settlement, Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.claim_round_trip import ClaimRoundTrips, LastOfNode
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.settling import PostgresSettlements
from penstock.brokers.postgres.store import PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.flow_needs import Place
from penstock.brokers.tables.worker_rows import expire
from penstock.job import Job, State

_MEMBERS = 16  # fewer jobs of a node are too likely to be its last
_NEWS_SECONDS = 2.5  # so long recover trusts a claim that found no lapsed worker


class PostgresClaims:
    """Claim and settle. Both know whether limits or key orders make others wait for an end."""

    def __init__(self, store: PostgresStore, settlements: PostgresSettlements) -> None:
        self.store = store
        self.clock = store.clock
        self._settlements = settlements
        # The workers whose row was written by claims of this process, and when.
        self.registered: dict[str, tuple[WorkerRow, float]] = {}
        store.listener.workers = self.registered
        self.moved = False  # jobs were claimed or settled since the counts were folded
        self._limited = False  # the last claim met a limit
        self._ordered = False  # jobs claimed here hold back others of their key
        self._news_at = -1.0
        self._lapsed = True  # at _news_at some worker's lease had run out

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        accepted: list[bool] = []
        taken: list[list[Job[Any]]] = []
        times: list[float] = []
        with self.store.connection(self.store.work_seconds) as connection:
            if not wanted and settlements:
                accepted, woken = self._settlements.settle_on(connection, settlements)
                self.store.notify_on(connection, woken)
            for request in wanted:
                claim = self._claim(connection, settlements, request)
                accepted = accepted or claim.accepted
                settlements = ()
                taken.append(claim.jobs)
                # Who has got all that was asked for asks again in any case.
                if claim.left > 0 and (at := claim.next_at()) is not None:
                    times.append(at)
        return Claimed(taken, accepted, min(times, default=None))

    def _claim(
        self, connection: Connection, pairs: Sequence[Settlement], wanted: Wanted
    ) -> ClaimRoundTrips:
        own = wanted.limit > 0 and bool(pairs) and pairs[0][0].worker == wanted.worker.id
        own = own and not planned_epoch()
        claim = self._settle_and_claim(connection, pairs, wanted) if own else None
        woken: Collection[int] = ()
        if claim is None:
            accepted, woken = self._settlements.settle_on(connection, pairs) if pairs else ([], ())
            if back := {job.lane.hash for job, outcome in pairs if outcome.state is State.READY}:
                self.store.forget_claimable(back)
                woken = {*woken, *back}
            # Not before: its time is read here, and freed jobs are due from the settlement on.
            claim = ClaimRoundTrips(self, connection, wanted)
            claim.accepted = accepted
        if wanted.limit > 0:
            claim.claim_more()
            claim.finish()
        if woken:
            self.store.notify_on(connection, woken)
        self.moved = self.moved or bool(pairs or claim.jobs)
        self._limited = claim.limited if wanted.limit > 0 else self._limited
        self._ordered = self._ordered or claim.ordered
        if (self._limited and len(claim.jobs) < len(pairs)) or (
            self._ordered and _keys_of(pairs) - {(job.queue, job.key) for job in claim.jobs}
        ):
            # What ended made room under a limit, or freed its key, and others may use that.
            self.store.notify_on(connection, {job.lane.hash for job, _ in pairs})
        return claim

    def _settle_and_claim(
        self, connection: Connection, pairs: Sequence[Settlement], wanted: Wanted
    ) -> ClaimRoundTrips | None:
        """Settle and claim in one round trip; None if these cannot be settled that way."""
        node: Place | None = None
        settled = self._settlements.plain_successes(pairs)
        if settled is None and len(pairs) >= _MEMBERS:
            node, settled = self._settlements.node_successes(pairs)
        if settled is None:
            return None
        claim = ClaimRoundTrips(self, connection, wanted)
        try:
            claim.settle_and_claim(settled, node)
        except LastOfNode:
            return None
        return claim

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        if not pairs:
            return []
        self.moved = True
        with self.store.connection(self.store.work_seconds) as connection:
            accepted, woken = self._settlements.settle_on(connection, pairs)
            frees_others = self._limited or (self._ordered and _keys_of(pairs))
            if frees_others or any(outcome.state is State.READY for _, outcome in pairs):
                self.store.notify_on(connection, ())
            elif woken:
                self.store.notify_on(connection, woken)
        return accepted

    def on_news(self, news: str, now: float) -> None:
        """What a look or a claim answered besides jobs: the words of functions/claim.sql."""
        self._news_at = now
        self._lapsed = "lapsed" in news
        if "expired" in news:
            with self.store.writing() as db:
                change = Change(self.store, db, now)
                expire(change)
                change.finish()
            change.after_commit()

    def nobody_lapsed(self) -> bool:
        """Whether a claim or a look just found that no worker's lease had run out."""
        fresh = 0 <= self.clock.now() - self._news_at < _NEWS_SECONDS
        return fresh and not self._lapsed

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        hint, lanes = self.store.listener.wait(queues, timeout, self.store.lanes.get)
        if hint:
            self.store.forget_claimable(lanes)
        return hint


def _keys_of(pairs: Sequence[Settlement]) -> set[tuple[str, str | None]]:
    return {(job.queue, job.key) for job, _ in pairs if job.key is not None}
