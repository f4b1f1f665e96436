"""Settle: successes in one call for each lease, all other outcomes row by row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from penstock.broker.move import planned_epoch
from penstock.broker.settlement import kept_until
from penstock.broker.values import Settlement
from penstock.brokers.postgres.binary_arrays import (
    bytea_array,
    float8_array,
    float8_array_or_null,
    int4_array,
    uuid_array,
)
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.errors import as_penstock_errors
from penstock.brokers.postgres.function_calls import (
    BOOL,
    BYTEA_ARRAY,
    FLOAT8,
    FLOAT8_ARRAY,
    INT4_ARRAY,
    INT8,
    TEXT,
    UUID_ARRAY,
    Call,
    boolean,
    call,
    float8,
    int8,
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

Encoded = tuple[bytes | None, ...]
SETTLED = (
    INT8,
    FLOAT8,
    INT4_ARRAY,
    UUID_ARRAY,
    FLOAT8_ARRAY,
    FLOAT8_ARRAY,
    FLOAT8_ARRAY,
    BYTEA_ARRAY,
    BYTEA_ARRAY,
    FLOAT8_ARRAY,
    BOOL,
)
_SUCCEED = Call("succeed", sql.succeed, (TEXT, *SETTLED))
_SUCCEED_ROWS = Call(
    "succeed_rows",
    sql.succeed_rows,
    (
        UUID_ARRAY,
        INT4_ARRAY,
        FLOAT8_ARRAY,
        FLOAT8_ARRAY,
        FLOAT8_ARRAY,
        BYTEA_ARRAY,
        BYTEA_ARRAY,
        FLOAT8_ARRAY,
    ),
)


class PostgresSettlements(Settlements[PostgresStore]):
    """Settle, as every store in tables does; but successes are one call for each lease."""

    def settle_on(
        self, connection: Connection, pairs: Sequence[Settlement]
    ) -> tuple[list[bool], Collection[int]]:
        """Apply outcomes: which were accepted, and the lanes in which jobs became ready.

        The caller notifies workers of those lanes once it does not need the connection any more.
        """
        # One that was planned with a map of shards needs a transaction, which holds the map.
        if not planned_epoch() and (values := self.plain_successes(pairs)) is not None:
            return _succeed(connection, pairs[0][0].worker, values), ()
        return self._settle_in_transaction(connection, pairs)

    @retried
    def _settle_in_transaction(
        self, connection: Connection, pairs: Sequence[Settlement]
    ) -> tuple[list[bool], Collection[int]]:
        flushed = durable(self.store, (job.queue for job, _ in pairs))
        with (
            as_penstock_errors(self.store.where),  # inside of `retried`, which goes by our errors
            self.store.transaction(connection, durable=flushed) as db,
        ):
            change = Change(self.store, db, self.clock.now())
            accepted = self.settle_within(change, pairs)
        if change.woken:
            self.store.forget_claimable(change.woken)
        return accepted, change.woken

    def _apply(self, change: Change, pairs: Sequence[Settlement]) -> list[bool]:
        connection = cast("PostgresDb", change.db).connection
        # Whether the commit waits for the disk was decided when the transaction began.
        values = encode_successes(pairs, change.now, relaxed=False, secrets=True)
        if values is not None:
            accepted = _succeed(connection, pairs[0][0].worker, values)
        else:
            accepted = self._apply_first_of_each(change, connection, pairs)
        succeeded = [
            pair
            for taken, pair in zip(accepted, pairs, strict=True)
            if taken and pair[1].state is State.SUCCEEDED
        ]
        change.members_succeeded([job.body for job, _ in succeeded])
        for job, outcome in succeeded:
            if outcome.spawned:
                change.spawn(job, outcome)
        self.blank_secrets(change, (job for job, _ in succeeded))
        return accepted

    def _apply_first_of_each(
        self, change: Change, connection: Connection, pairs: Sequence[Settlement]
    ) -> list[bool]:
        """Of two outcomes for the same attempt, apply the first and reject the second."""
        first: dict[tuple[str, int, float | None], int] = {}
        for index, (job, _) in enumerate(pairs):
            first.setdefault((job.id, job.attempt, job.claimed_at), index)
        accepted = [False] * len(pairs)
        applied = self._apply_by_kind(
            change, connection, [pairs[index] for index in first.values()]
        )
        for index, taken in zip(first.values(), applied, strict=True):
            accepted[index] = taken
        return accepted

    def _apply_by_kind(
        self, change: Change, connection: Connection, pairs: Sequence[Settlement]
    ) -> list[bool]:
        accepted = [False] * len(pairs)
        leases: dict[tuple[int, str, float], dict[int, int]] = {}  # place in the lease -> index
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
            values = encode_successes(some, change.now, relaxed=False, secrets=True) or ()
            marks = _succeed(connection, worker, values)
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

    def plain_successes(self, pairs: Sequence[Settlement]) -> Encoded | None:
        """See encode_successes; None for flow members and for jobs that spawned others."""
        if any(b'"flow":' in job.body or outcome.spawned for job, outcome in pairs):
            return None
        relaxed = not durable(self.store, (job.queue for job, _ in pairs))
        return encode_successes(pairs, self.clock.now(), relaxed=relaxed)

    def node_successes(
        self, pairs: Sequence[Settlement]
    ) -> tuple[Place, Encoded] | tuple[None, None]:
        """See encode_successes; only for jobs that are all of one node and spawned none."""
        if any(outcome.spawned for _, outcome in pairs):
            return None, None
        places = list(places_of([job.body for job, _ in pairs]))
        if len(places) != 1 or places[0][1] != len(pairs):
            return None, None
        relaxed = not durable(self.store, (job.queue for job, _ in pairs))
        settled = encode_successes(pairs, self.clock.now(), relaxed=relaxed)
        return (None, None) if settled is None else (places[0][0], settled)

    def _succeed_rows(self, connection: Connection, pairs: Sequence[Settlement]) -> set[bytes]:
        now = self.clock.now()
        ended = [now if outcome.ended_at is None else outcome.ended_at for _, outcome in pairs]
        kept = [outcome.keep for _, outcome in pairs]
        values = (
            uuid_array([to_bytes(job.id) for job, _ in pairs]),
            int4_array([job.attempt for job, _ in pairs]),
            float8_array([job.claimed_at or 0.0 for job, _ in pairs]),
            float8_array(ended),
            float8_array_or_null([outcome.started_at for _, outcome in pairs]),
            bytea_array(
                [
                    redact(job.body) if keep else None
                    for (job, _), keep in zip(pairs, kept, strict=True)
                ]
            ),
            bytea_array([outcome.result if outcome.keep else None for _, outcome in pairs]),
            float8_array_or_null(
                [kept_until(outcome, at) for (_, outcome), at in zip(pairs, ended, strict=True)]
            ),
        )
        [[done]] = call(connection, _SUCCEED_ROWS, values)
        return set(to_ids(done or b""))


def _succeed(connection: Connection, worker: str | None, values: Encoded) -> list[bool]:
    [[marks]] = call(connection, _SUCCEED, (text(worker), *values))
    return [bool(mark) for mark in marks or b""]


def encode_successes(
    pairs: Sequence[Settlement], now: float, *, relaxed: bool, secrets: bool = False
) -> Encoded | None:
    """The parameters of penstock.succeed after the worker, for jobs of one lease that succeeded.

    None if some did not succeed, are of another lease, or are in there twice. None also for jobs
    with secrets, unless `secrets`: whoever settles those blanks them in the lease.
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
        lease_of_job, place, raw = held
        if lease_of_job != lease:
            return None
        places.append(place)
        ids.append(raw)
        ended_at = now if outcome.ended_at is None else outcome.ended_at
        ended.append(ended_at)
        body = job.body
        if b'"secret"' in body:
            if not secrets:
                return None
            body = redact(body)
        if not outcome.keep:
            bodies.append(None)
            results.append(None)
            keep.append(None)
            continue
        bodies.append(body)
        results.append(outcome.result)
        keep.append(None if outcome.keep_for is None else ended_at + outcome.keep_for)
    if len(set(places)) < len(places):
        return None
    return (
        int8(lease),
        float8(claimed_at or 0.0),
        int4_array(places),
        uuid_array(ids),
        float8_array(ended),
        float8_array([job.enqueued_at for job, _ in pairs]),
        float8_array_or_null([outcome.started_at for _, outcome in pairs]),
        bytea_array(bodies),
        bytea_array(results),
        float8_array_or_null(keep),
        boolean(relaxed),
    )
