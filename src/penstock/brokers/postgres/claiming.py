"""Work: claims, settling on the way, waiting, and transactions that end with a job."""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
import psycopg

from penstock.broker import WorkerRow
from penstock.brokers.postgres.arrays import (
    bigs,
    blobs,
    floats,
    floats_or_none,
    ints,
    uuids,
)
from penstock.brokers.postgres.calls import (
    BIG,
    BIGS,
    BLOBS,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    TEXT,
    UUIDS,
    Answer,
    Call,
    big,
    call,
    integer,
    number,
    text,
    to_ids,
    to_int,
)
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.hand_over import HandOver
from penstock.brokers.postgres.offers import Offer
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, in_our_words
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.rows import Held, ids_after, job_of, made_at, split
from penstock.errors import StoreUnreachable
from penstock.ids import OFFSETS, from_bytes, offset_of, prefix_of, to_bytes
from penstock.job import Job, Outcome, State
from penstock.redact import redact
from penstock.settlement import kept_until

Pair = tuple[Job[Any], Outcome]

WORK_SECONDS = 5.0  # a worker's own calls: it had better try again than wait
_SETTLED = (BIG, FLOAT, INTS, UUIDS, FLOATS, FLOATS, FLOATS, BLOBS, BLOBS, FLOATS)
_WANTED = (TEXT, TEXT, FLOAT, BIGS, INTS, INTS, INTS, UUIDS, FLOATS, INT, FLOAT, FLOAT)
_CLAIM = Call("claim", sql.claim, _WANTED)
_EXCHANGE = Call("exchange", sql.settle_and_claim, (*_SETTLED, *_WANTED))
_SUCCEED = Call("succeed", sql.succeed, (TEXT, *_SETTLED))
_SUCCEED_ROWS = Call(
    "succeed_rows", sql.succeed_rows, (UUIDS, INTS, FLOATS, FLOATS, BLOBS, BLOBS, FLOATS)
)
_LOOK = Call("look", sql.look, (FLOAT, FLOAT))
_LOOKED_SECONDS = 2.5  # so long a look that found no lapsed worker stands for another


class Claiming(HandOver):
    """Claim, settle and claim, wait, begin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._registered: dict[str, tuple[WorkerRow, float]] = {}
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

    def settle(self, pairs: Sequence[Pair]) -> list[bool]:
        if not pairs:
            return []
        with self.store.lend(WORK_SECONDS) as connection:
            accepted = self._settle_now(connection, pairs)
            if any(outcome.state is State.READY for _, outcome in pairs):
                self.store.ring(connection, ())
        return accepted

    def settle_and_claim(
        self,
        pairs: Sequence[Pair],
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> tuple[list[bool], list[Job[Any]]]:
        with self.store.lend(WORK_SECONDS) as connection:
            claim = _Claim(self, connection, worker, queues, limit, sizes)
            lease = _one_lease(pairs) if limit > 0 else None
            if lease is not None:
                claim.exchange(lease, pairs)
            elif pairs:
                claim.accepted = self._settle_now(connection, pairs)
            if limit > 0:
                claim.go_on()
            return claim.accepted, claim.jobs

    def _settle_now(self, connection: Connection, pairs: Sequence[Pair]) -> list[bool]:
        """Apply outcomes: successes by a call for each lease, whatever is rarer row by row."""
        if (lease := _one_lease(pairs)) is not None:
            return self._succeed(connection, lease, pairs)
        durable = not (self.relaxed and all(job.queue in self.relaxed for job, _ in pairs))
        with self.store.transaction(connection, durable=durable) as db:
            return self._settle(db, pairs)

    def _settle(self, db: Db, pairs: Sequence[Pair]) -> list[bool]:
        """Within a transaction."""
        accepted = [False] * len(pairs)
        leases: dict[tuple[int, str | None, float | None], list[int]] = {}
        rows: list[int] = []
        others: list[int] = []
        for index, (job, outcome) in enumerate(pairs):
            if outcome.state is not State.SUCCEEDED:
                others.append(index)
            elif job.lease is None:
                rows.append(index)
            else:
                place = (job.lease[0], job.worker, job.claimed_at)
                leases.setdefault(place, []).append(index)
        connection = cast("PostgresDb", db).connection
        for (lease, _, _), indexes in leases.items():
            marks = self._succeed(connection, lease, [pairs[index] for index in indexes])
            for index, mark in zip(indexes, marks, strict=True):
                accepted[index] = mark
        if rows:
            done = self._succeed_rows(connection, [pairs[index] for index in rows])
            for index in rows:
                accepted[index] = to_bytes(pairs[index][0].id) in done
                done.discard(to_bytes(pairs[index][0].id))
        if others:
            settled = super()._settle(db, [pairs[index] for index in others])
            for index, taken in zip(others, settled, strict=True):
                accepted[index] = taken
        return accepted

    def _succeed(self, connection: Connection, lease: int, pairs: Sequence[Pair]) -> list[bool]:
        values = (text(pairs[0][0].worker), *_successes(lease, pairs, self.clock.now()))
        [[marks]] = call(connection, _SUCCEED, values)
        return [bool(mark) for mark in marks or b""]

    def _succeed_rows(self, connection: Connection, pairs: Sequence[Pair]) -> set[bytes]:
        now = self.clock.now()
        ended = [now if outcome.ended_at is None else outcome.ended_at for _, outcome in pairs]
        kept = [outcome.keep for _, outcome in pairs]
        values = (
            uuids([to_bytes(job.id) for job, _ in pairs]),
            ints([job.attempt for job, _ in pairs]),
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

    def _heard_news(self, news: str, now: float) -> None:
        self._news_at = now
        self._lapsed = "lapsed" in news
        if "expired" in news:
            with self.store.writing() as db:
                change = Change(self.store.sql, db, now)
                self._expire(change)
                change.finish()

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
        if hint and not lanes:
            self.offers.forget()
        self._news |= lanes
        return hint

    def wake(self) -> None:
        self.ear.ring()

    def rules_version(self) -> int:
        self.ear.listen()
        return self.ear.rules

    def begin(self) -> PostgresTransaction:
        with in_our_words(self.store.where):
            return PostgresTransaction(self, self.store.connect())


class _Claim:
    """One call of claim: as many round trips as it takes, mostly one."""

    def __init__(
        self,
        broker: Claiming,
        connection: Connection,
        worker: WorkerRow,
        queues: Collection[str] | None,
        limit: int,
        sizes: Mapping[str, int] | None,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.worker = worker
        self.queues = queues
        self.left = limit
        self.sizes = None if sizes is None else dict(sizes)
        self.accepted: list[bool] = []
        self.jobs: list[Job[Any]] = []
        self.now = broker.clock.now()
        self.looked = False
        self.said = False  # the worker's row was looked at
        self.guesses: list[int] = []

    def exchange(self, lease: int, pairs: Sequence[Pair]) -> None:
        """Settle one lease's successes and claim, in one round trip."""
        if pairs[0][0].worker != self.worker.id:
            self.accepted = self.broker._settle_now(self.connection, pairs)  # noqa: SLF001
            return
        offers = self._offers()
        values = (*_successes(lease, pairs, self.now), *self._parameters(offers))
        rows = call(self.connection, _EXCHANGE, values)
        self.accepted = [bool(mark) for mark in rows[0][5] or b""]
        self._take_over(rows[1:], offers)

    def go_on(self) -> None:
        """Claim until there is enough, or nothing left."""
        while self.left > 0:
            offers = self._offers()
            if not offers and self.said:
                return
            if not offers and not self._declared():
                return
            self._take_over(call(self.connection, _CLAIM, self._parameters(offers)), offers)
            if not offers:
                return

    def _offers(self) -> list[Offer]:
        broker = self.broker
        offers = broker.offers
        if not self.looked and not offers.fresh(self.now):
            self._look()
        best = offers.best(self.worker, self.queues, self.sizes, self.now)
        if not best and not self.looked:
            self._look()
            best = offers.best(self.worker, self.queues, self.sizes, self.now)
        return best

    def _look(self) -> None:
        broker, store = self.broker, self.broker.store
        self.looked = True
        began = time.monotonic()
        db = PostgresDb(self.connection)
        rows = call(self.connection, _LOOK, (number(self.now), number(store.lease_time())))
        broker.offers.learn(rows, lambda lane: store.lane(db, lane), self.now, began)
        broker._heard_news(b" ".join(row[4] for row in rows if row[4]).decode(), self.now)  # noqa: SLF001

    def _declared(self) -> str | None:
        """What the worker's row is to say; None if it says so already, and is fresh."""
        worker, registered = self.worker, self.broker._registered  # noqa: SLF001
        known, at = registered.get(worker.id, (None, 0.0))
        same = known is not None and (known.tasks, known.tags, known.queues, known.lease) == (
            worker.tasks,
            worker.tags,
            worker.queues,
            worker.lease,
        )
        if same and 0 <= self.now - at < worker.lease / 3:
            return None
        return msgspec.json.encode(
            msgspec.structs.replace(worker, tags=frozenset(sorted(worker.tags)))
        ).decode()

    def _parameters(self, offers: Sequence[Offer]) -> tuple[bytes | None, ...]:
        declared = self._declared()
        if declared is not None:
            self.broker._registered[self.worker.id] = (self.worker, self.now)  # noqa: SLF001
        tasks = list(dict.fromkeys(offer.lane.task for offer in offers))
        sizes = [self._most(task) for task in tasks]
        self.guesses = [offer.guess(self._most(offer.lane.task)) for offer in offers]
        return (
            text(self.worker.id),
            text(declared),
            number(self.worker.lease),
            bigs([offer.hash for offer in offers]),
            ints([tasks.index(offer.lane.task) + 1 for offer in offers]),
            ints(sizes),
            ints(self.guesses),
            uuids([offer.floor for offer in offers]),
            floats_or_none([offer.row_floor if offer.loose else None for offer in offers]),
            integer(self.left),
            number(self.now),
            number(self.broker.store.lease_time()),
        )

    def _most(self, task: str) -> int:
        if self.sizes is None:
            return self.left
        return max(0, min(self.left, self.sizes.get(task, self.left)))

    def _take_over(self, rows: Answer, offers: Sequence[Offer]) -> None:
        known = {offer.hash: offer for offer in offers}
        taken: dict[int, tuple[int, int]] = {}
        self.said = True
        for lane, *packed, job_rows, news in rows:
            if lane is not None:
                offer = known[to_int(lane)]
                taken[offer.hash] = self._take(offer, packed, job_rows)
            elif news == b"unknown":
                # Given up for dead, or never there: the next time it introduces itself.
                self.broker._registered.pop(self.worker.id, None)  # noqa: SLF001
                self.said = False
                return
            else:
                self.broker._heard_news((news or b"").decode(), self.now)  # noqa: SLF001
        for offer, guess in zip(offers, self.guesses, strict=True):
            want = self._most(offer.lane.task)
            jobs, parcels = taken.get(offer.hash, (0, 0))
            self.left -= jobs
            if self.sizes is not None and offer.lane.task in self.sizes:
                self.sizes[offer.lane.task] -= jobs
            if jobs < want and parcels < guess:
                self.broker.offers.exhausted(offer)
        if self.left > 0 and not self.broker.offers.lanes:
            self.broker.offers.forget()

    def _take(self, offer: Offer, packed: Sequence[Any], job_rows: bytes | None) -> tuple[int, int]:
        """How many jobs came out of a lane, and out of how many parcels."""
        before = len(self.jobs)
        if job_rows:
            self._take_rows(offer, job_rows)
        lease, firsts, counts, lengths, bodies = packed
        if lease is None:
            return len(self.jobs) - before, 0
        self._take_parcels(offer, to_int(lease), firsts, counts, (lengths, bodies))
        return len(self.jobs) - before, len(firsts) // 16

    def _take_rows(self, offer: Offer, ids: bytes) -> None:
        db = PostgresDb(self.connection)
        rows = db.execute(sql.claimed_rows, (ids,)).fetchall()
        jobs = [job_of(offer.lane, row) for row in rows]
        jobs.sort(key=lambda job: (job.run_at or 0.0, job.id))
        self.jobs += jobs
        offer.row_floor = max(offer.row_floor, jobs[-1].run_at or 0.0) if jobs else offer.row_floor

    def _take_parcels(
        self, offer: Offer, lease: int, firsts: bytes, counts: bytes, packed: tuple[bytes, bytes]
    ) -> None:
        numbers = array("H", counts)
        numbers.byteswap()
        bodies = split(*packed)
        lane, running, name, now = offer.lane, State.RUNNING, self.worker.id, self.now
        task, queue, version, priority = lane.task, lane.queue, lane.version, lane.priority
        runs_on = lane.runs_on
        place = 0
        for index, count in enumerate(numbers):
            first = firsts[16 * index : 16 * index + 16]
            text = from_bytes(first)
            prefix, offset, enqueued_at = prefix_of(text), offset_of(text), made_at(first)
            ids = [first] if count == 1 else ids_after(first, count)
            # Spelt out, and not packed_jobs: this is the hot path, 0.2 us a job count.
            self.jobs += [
                Job(
                    task=task,
                    body=bodies[place + step],
                    id=prefix + OFFSETS[offset + step],
                    queue=queue,
                    version=version,
                    priority=priority,
                    runs_on=runs_on,
                    state=running,
                    attempt=1,
                    enqueued_at=enqueued_at,
                    claimed_at=now,
                    worker=name,
                    lease=(lease, place + step, ids[step]),
                )
                for step in range(count)
            ]
            place += count
        # Where to go on: a hint, so never further than what was taken.
        offer.floor = self.jobs[-1].lease[2]
        offer.per_parcel = max(1.0, (offer.per_parcel + place / len(numbers)) / 2)


def _one_lease(pairs: Sequence[Pair]) -> int | None:
    """The lease that all of these come from, if they all succeeded."""
    if not pairs or pairs[0][0].lease is None:
        return None
    lease = pairs[0][0].lease[0]
    claimed_at = pairs[0][0].claimed_at
    for job, outcome in pairs:
        if (
            outcome.state is not State.SUCCEEDED
            or job.lease is None
            or job.lease[0] != lease
            or job.claimed_at != claimed_at
        ):
            return None
    return lease


def _successes(lease: int, pairs: Sequence[Pair], now: float) -> tuple[bytes | None, ...]:
    """The parameters of penstock.succeed after the worker."""
    places: list[int] = []
    ids: list[bytes] = []
    ended: list[float] = []
    bodies: list[bytes | None] = []
    results: list[bytes | None] = []
    keep: list[float | None] = []
    for job, outcome in pairs:
        held: Held = job.lease
        _, place, raw = held
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
    return (
        big(lease),
        number(pairs[0][0].claimed_at or 0.0),
        ints(places),
        uuids(ids),
        floats(ended),
        floats([job.enqueued_at for job, _ in pairs]),
        floats_or_none([outcome.started_at for _, outcome in pairs]),
        blobs(bodies),
        blobs(results),
        floats_or_none(keep),
    )


class PostgresTransaction:
    """A job's effects and its end, committed together in one transaction of the same database."""

    def __init__(self, broker: Claiming, connection: Connection) -> None:
        self.connection = connection
        self._broker = broker
        try:
            connection.execute("begin")
        except BaseException:
            connection.close()
            raise

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        try:
            if self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                raise RuntimeError(
                    f"the task of job {job.id} ended its transaction() itself: leave commit and "
                    "rollback out, it is committed when the task has returned"
                )
            with in_our_words(self._broker.store.where):
                [accepted] = self._broker._settle(PostgresDb(self.connection), [(job, outcome)])  # noqa: SLF001
                if accepted:
                    self.connection.execute("commit")
            return accepted
        finally:
            self.rollback()

    def rollback(self) -> None:
        with suppress(psycopg.Error):
            if not self.connection.closed:
                self.connection.execute("rollback")
        self.connection.close()


__all__ = ["Claiming", "PostgresTransaction", "StoreUnreachable"]
