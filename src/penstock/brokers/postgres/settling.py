"""Settle: what succeeded goes in one call for each lease, whatever is rarer row by row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from penstock.broker.settlement import kept_until
from penstock.broker.values import Settlement
from penstock.brokers.postgres.binary_arrays import blobs, floats, floats_or_none, ints, uuids
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.errors import in_our_words
from penstock.brokers.postgres.function_calls import (
    BIG,
    BLOBS,
    FLAG,
    FLOAT,
    FLOATS,
    INTS,
    TEXT,
    UUIDS,
    Call,
    big,
    call,
    flag,
    number,
    text,
    to_ids,
)
from penstock.brokers.postgres.retrying import retried
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import durable
from penstock.brokers.tables.flow_needs import Place, places_of
from penstock.brokers.tables.rows import Held
from penstock.brokers.tables.settling import Settlements
from penstock.enqueue.ids import to_bytes
from penstock.enqueue.secrets import redact
from penstock.job import State

SETTLED = (BIG, FLOAT, INTS, UUIDS, FLOATS, FLOATS, FLOATS, BLOBS, BLOBS, FLOATS, FLAG)
_SUCCEED = Call("succeed", sql.succeed, (TEXT, *SETTLED))
_SUCCEED_ROWS = Call(
    "succeed_rows", sql.succeed_rows, (UUIDS, INTS, FLOATS, FLOATS, FLOATS, BLOBS, BLOBS, FLOATS)
)


class PostgresSettlements(Settlements[PostgresStore]):
    """Settle: as every store in tables, but successes are one call for each lease."""

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        if not pairs:
            return []
        with self.store.lend(self.store.work_seconds) as connection:
            accepted, woken = self.settle_on(connection, pairs)
            if any(outcome.state is State.READY for _, outcome in pairs):
                self.store.notify_on(connection, ())
            elif woken:
                self.store.notify_on(connection, woken)
        return accepted

    def settle_on(
        self, connection: Connection, pairs: Sequence[Settlement]
    ) -> tuple[list[bool], Collection[int]]:
        """Apply outcomes: successes by a call for each lease, whatever is rarer row by row.

        Answers the lanes as well that have something ready because of it, to be rung for when the
        connection is not needed any more.
        """
        if (values := self.successes(pairs)) is not None:
            return self._succeed(connection, (text(pairs[0][0].worker), *values)), ()
        return self._settle_in_one(connection, pairs)

    @retried
    def _settle_in_one(
        self, connection: Connection, pairs: Sequence[Settlement]
    ) -> tuple[list[bool], Collection[int]]:
        waits = durable(self.store, (job.queue for job, _ in pairs))
        with (
            in_our_words(self.store.where),
            self.store.transaction(connection, durable=waits) as db,
        ):
            change = Change(self.store, db, self.clock.now())
            accepted = self.settle_within(change, pairs)
        if change.woken:
            self.store.forget_claimable(change.woken)
        return accepted, change.woken

    def _apply(self, change: Change, pairs: Sequence[Settlement]) -> list[bool]:
        connection = cast("PostgresDb", change.db).connection
        # Whether the commit waits for the disk was decided when the transaction began.
        values = successes(pairs, change.now, relaxed=False)
        if values is not None:
            accepted = self._succeed(connection, (text(pairs[0][0].worker), *values))
        else:
            accepted = self._apply_once(change, connection, pairs)
        good = [
            pair
            for taken, pair in zip(accepted, pairs, strict=True)
            if taken and pair[1].state is State.SUCCEEDED
        ]
        change.members_succeeded([job.body for job, _ in good])
        for job, outcome in good:
            if outcome.spawned:
                change.spawn(job.body, outcome)
        return accepted

    def _apply_once(
        self, change: Change, connection: Connection, pairs: Sequence[Settlement]
    ) -> list[bool]:
        """Settle each job once: of two outcomes for one attempt, the first counts."""
        first: dict[tuple[str, int, float | None], int] = {}
        for index, (job, _) in enumerate(pairs):
            first.setdefault((job.id, job.attempt, job.claimed_at), index)
        accepted = [False] * len(pairs)
        some = [pairs[index] for index in first.values()]
        applied = self._apply_each_kind(change, connection, some)
        for index, taken in zip(first.values(), applied, strict=True):
            accepted[index] = taken
        return accepted

    def _apply_each_kind(
        self, change: Change, connection: Connection, pairs: Sequence[Settlement]
    ) -> list[bool]:
        accepted = [False] * len(pairs)
        leases: dict[tuple[int, str, float], dict[int, int]] = {}  # place -> index
        rows: list[int] = []
        others: list[int] = []
        for index, (job, outcome) in enumerate(pairs):
            if outcome.state is not State.SUCCEEDED:
                others.append(index)
            elif job.lease is None:
                rows.append(index)
            else:
                lease = (job.lease[0], job.worker or "", job.claimed_at or 0.0)
                leases.setdefault(lease, {})[job.lease[1]] = index
        for (_, worker, _), places in sorted(leases.items()):
            some = [pairs[index] for index in places.values()]
            values = successes(some, change.now, relaxed=False) or ()
            marks = self._succeed(connection, (text(worker), *values))
            for index, mark in zip(places.values(), marks, strict=True):
                accepted[index] = mark
        if rows:
            first = {to_bytes(pairs[index][0].id): index for index in rows}
            done = self._succeed_rows(connection, [pairs[index] for index in first.values()])
            for raw in done:
                accepted[first[raw]] = True
        if others:
            settled = super()._apply(change, [pairs[index] for index in others])
            for index, taken in zip(others, settled, strict=True):
                accepted[index] = taken
        return accepted

    def _succeed(self, connection: Connection, values: Sequence[bytes | None]) -> list[bool]:
        [[marks]] = call(connection, _SUCCEED, values)
        return [bool(mark) for mark in marks or b""]

    def successes(self, pairs: Sequence[Settlement]) -> tuple[bytes | None, ...] | None:
        """As the function below; None for flow members and for jobs that spawned others."""
        if any(b'"flow":' in job.body or outcome.spawned for job, outcome in pairs):
            return None
        relaxed = not durable(self.store, (job.queue for job, _ in pairs))
        return successes(pairs, self.clock.now(), relaxed=relaxed)

    def members(
        self, pairs: Sequence[Settlement]
    ) -> tuple[Place, tuple[bytes | None, ...]] | tuple[None, None]:
        """As `successes`, of jobs that are all of one node and spawned nothing; with the node."""
        if any(outcome.spawned for _, outcome in pairs):
            return None, None
        places = list(places_of([job.body for job, _ in pairs]))
        if len(places) != 1 or places[0][1] != len(pairs):
            return None, None
        relaxed = not durable(self.store, (job.queue for job, _ in pairs))
        settled = successes(pairs, self.clock.now(), relaxed=relaxed)
        return (None, None) if settled is None else (places[0][0], settled)

    def _succeed_rows(self, connection: Connection, pairs: Sequence[Settlement]) -> set[bytes]:
        now = self.clock.now()
        ended = [now if outcome.ended_at is None else outcome.ended_at for _, outcome in pairs]
        kept = [outcome.keep for _, outcome in pairs]
        values = (
            uuids([to_bytes(job.id) for job, _ in pairs]),
            ints([job.attempt for job, _ in pairs]),
            floats([job.claimed_at or 0.0 for job, _ in pairs]),
            floats(ended),
            floats_or_none([outcome.started_at for _, outcome in pairs]),
            blobs(
                [
                    redact(job.body) if keep else None
                    for (job, _), keep in zip(pairs, kept, strict=True)
                ]
            ),
            blobs([outcome.result if outcome.keep else None for _, outcome in pairs]),
            floats_or_none(
                [kept_until(outcome, at) for (_, outcome), at in zip(pairs, ended, strict=True)]
            ),
        )
        [[done]] = call(connection, _SUCCEED_ROWS, values)
        return set(to_ids(done or b""))


def successes(
    pairs: Sequence[Settlement], now: float, *, relaxed: bool
) -> tuple[bytes | None, ...] | None:
    """As penstock.succeed takes them after the worker: jobs of one lease that succeeded.

    None if some did not, or are of another lease, or if one is told twice.
    """
    if not pairs or pairs[0][0].lease is None:
        return None
    lease, claimed_at, success = pairs[0][0].lease[0], pairs[0][0].claimed_at, State.SUCCEEDED
    places: list[int] = []
    ids: list[bytes] = []
    ended: list[float] = []
    bodies: list[bytes | None] = []
    results: list[bytes | None] = []
    keep: list[float | None] = []
    for job, outcome in pairs:
        held: Held | None = job.lease
        if outcome.state is not success or held is None or job.claimed_at != claimed_at:
            return None
        its, place, raw = held
        if its != lease:
            return None
        places.append(place)
        ids.append(raw)
        ended_at = now if outcome.ended_at is None else outcome.ended_at
        ended.append(ended_at)
        body = job.body
        if not outcome.keep:
            bodies.append(None)
            results.append(None)
            keep.append(None)
            continue
        bodies.append(redact(body) if b'"secret"' in body else body)
        results.append(outcome.result)
        keep.append(None if outcome.keep_for is None else ended_at + outcome.keep_for)
    if len(set(places)) < len(places):
        return None
    return (
        big(lease),
        number(claimed_at or 0.0),
        ints(places),
        uuids(ids),
        floats(ended),
        floats([job.enqueued_at for job, _ in pairs]),
        floats_or_none([outcome.started_at for _, outcome in pairs]),
        blobs(bodies),
        blobs(results),
        floats_or_none(keep),
        flag(relaxed),
    )
