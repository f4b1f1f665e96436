"""One claim, from what there is to the jobs it hands out: mostly one round trip."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import psycopg

from penstock.app.clock import AnyClock
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.binary_arrays import bigs, floats_or_none, ints, uuids
from penstock.brokers.postgres.claimable_lanes import PostgresLaneOffer
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.function_calls import (
    BIGS,
    FLAG,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    TEXT,
    UUID,
    UUIDS,
    Answer,
    Call,
    call,
    flag,
    integer,
    number,
    text,
    to_ids,
    to_int,
)
from penstock.brokers.postgres.settling import SETTLED
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.flow_needs import Place
from penstock.brokers.tables.rows import ids_after, job_of, made_at, split
from penstock.enqueue.ids import OFFSETS, from_bytes, offset_of, prefix_of
from penstock.job import Job, State

_WANTED = (TEXT, TEXT, FLOAT, FLAG, BIGS, INTS, INTS, INTS, UUIDS, FLOATS, INT, FLOAT, FLOAT)
_CLAIM = Call("claim", sql.claim, _WANTED)
_EXCHANGE = Call("exchange", sql.settle_and_claim, (*SETTLED, *_WANTED))
_EXCHANGE_MEMBERS = Call(
    "exchange_members", sql.settle_members_and_claim, (*SETTLED, *_WANTED, UUID, UUID)
)
_LAST_OF_NODE = "PN003"
_LOOK = Call("look", sql.look, (FLOAT, FLOAT, BIGS, UUIDS, FLOATS))
_RENEW_IDLE = 0.6  # of its lease: then a worker renews itself even if it finds nothing to claim


class LastOfNode(Exception):
    """Nothing was done: these are the last jobs of their node, and others go on because of it."""


class ClaimState(Protocol):
    """What claims of a process share."""

    clock: AnyClock
    store: PostgresStore
    registered: dict[str, tuple[WorkerRow, float]]  # the workers that introduced themselves, when

    def heard_news(self, news: str, now: float) -> None: ...


class ClaimRoundTrips:
    """As many round trips as it takes: a look, if the last is too long ago, and claims."""

    def __init__(self, state: ClaimState, connection: Connection, wanted: Wanted) -> None:
        self.state = state
        self.claimable = state.store.claimable
        self.connection = connection
        self.worker = wanted.worker
        self.queues = wanted.queues
        self.left = wanted.limit
        self.sizes = None if wanted.sizes is None else dict(wanted.sizes)
        self.accepted: list[bool] = []
        self.jobs: list[Job[Any]] = []
        self.now = state.clock.now()
        self.looked = False
        self.bottom = False  # and from the bottom
        self.introduced = False  # the worker's row was looked at
        self.limited = False  # limits cover some of what there is
        self.ordered = False  # or an order per key
        self.guesses: list[int] = []

    def exchange(self, settled: tuple[bytes | None, ...], place: Place | None = None) -> None:
        """Settle successes of one lease of this worker, and claim, in one round trip.

        With `place`, they are of one node of a flow; see `LastOfNode`.
        """
        offers = self._offers()
        values = (*settled, *self._parameters(offers))
        try:
            if place is None:
                rows = call(self.connection, _EXCHANGE, values)
            else:
                rows = call(self.connection, _EXCHANGE_MEMBERS, (*values, *place))
        except psycopg.Error as error:
            if error.sqlstate != _LAST_OF_NODE:
                raise
            self.state.registered.pop(self.worker.id, None)  # that was undone as well
            raise LastOfNode from error
        self.accepted = [bool(mark) for mark in rows[0][5] or b""]
        self._take_over(rows[1:], offers)
        if self.limited and not self.jobs:
            self.looked = self.bottom = False  # that was before these ended and made room

    def go_on(self) -> None:
        """Claim until there is enough, or nothing left."""
        while self.left > 0:
            offers = self._offers()
            if not offers and self.introduced:
                return
            if not offers and not self._declared(_RENEW_IDLE):
                return
            self._take_over(call(self.connection, _CLAIM, self._parameters(offers)), offers)
            if not offers:
                return

    def _offers(self) -> list[PostgresLaneOffer]:
        offers = self.claimable
        if not self.looked and not offers.fresh(self.now):
            self._look(bottom=offers.bottom())
        best = offers.best(self.worker, self.queues, self.sizes, self.now)
        # Nobody is told that there is nothing without that; who has his hands full of other tasks
        # asks again and again, and hears of it.
        sizes = () if self.sizes is None else self.sizes.values()
        full = self.worker.running > 0 and 0 in sizes and not offers.bottom()
        if not best and not self.bottom and not full:
            self._look(bottom=True)
            best = offers.best(self.worker, self.queues, self.sizes, self.now)
        return best

    def _look(self, *, bottom: bool) -> None:
        store = self.state.store
        self.looked = True
        self.bottom = self.bottom or bottom
        began = time.monotonic()
        times = (number(self.now), number(store.lease_time()))
        if bottom:
            where: tuple[bytes | None, ...] = (None, None, None)
        else:
            lanes, floors, row_floors = self.claimable.floors()
            where = (bigs(lanes), uuids(floors), floats_or_none(row_floors))
        rows = call(self.connection, _LOOK, (*times, *where))
        seconds = time.monotonic() - began
        store.know_lanes(self.connection, [to_int(row[0]) for row in rows if row[0] is not None])
        db = PostgresDb(self.connection)
        self.claimable.learn(
            rows,
            lambda lane: store.lane(db, lane),
            self.now,
            seconds=seconds,
            bottom=bottom,
        )
        self._hear(b" ".join(row[4] for row in rows if row[4] and row[0] is None).decode())

    def _hear(self, news: str) -> None:
        self.limited = self.limited or "limited" in news
        self.ordered = self.ordered or "ordered" in news
        for word in news.split():
            if word.startswith("free="):
                self.claimable.free_at(self.now + float(word.removeprefix("free=")))
        self.state.heard_news(news, self.now)

    def _declared(self, share: float = 1 / 3) -> str | None:
        """What the worker's row is to say; None if it said so within this share of its lease."""
        worker, registered = self.worker, self.state.registered
        known, at = registered.get(worker.id, (None, 0.0))
        same = known is not None and (
            known.app,
            known.tasks,
            known.tags,
            known.queues,
            known.lease,
        ) == (
            worker.app,
            worker.tasks,
            worker.tags,
            worker.queues,
            worker.lease,
        )
        if same and 0 <= self.now - at < worker.lease * share:
            return None
        return msgspec.json.encode(
            msgspec.structs.replace(worker, tags=frozenset(sorted(worker.tags)))
        ).decode()

    def _parameters(self, offers: Sequence[PostgresLaneOffer]) -> tuple[bytes | None, ...]:
        declared = self._declared()
        if declared is not None:
            self.state.registered[self.worker.id] = (self.worker, self.now)
        tasks = list(dict.fromkeys(offer.lane.task for offer in offers))
        sizes = [self._most(task) for task in tasks]
        self.guesses = [offer.guess(self._most(offer.lane.task)) for offer in offers]
        return (
            text(self.worker.id),
            text(declared),
            number(self.worker.lease),
            flag(self.state.store.listener.hears),
            bigs([offer.hash for offer in offers]),
            ints([tasks.index(offer.lane.task) + 1 for offer in offers]),
            ints(sizes),
            ints(self.guesses),
            uuids([offer.floor for offer in offers]),
            floats_or_none([offer.row_floor if offer.loose else None for offer in offers]),
            integer(self.left),
            number(self.now),
            number(self.state.store.lease_time()),
        )

    def _most(self, task: str) -> int:
        if self.sizes is None:
            return self.left
        return max(0, min(self.left, self.sizes.get(task, self.left)))

    def _take_over(self, rows: Answer, offers: Sequence[PostgresLaneOffer]) -> None:
        known = {offer.hash: offer for offer in offers}
        taken: dict[int, tuple[int, int]] = {}
        self.introduced = True
        for lane, *packed, job_rows, news in rows:
            if lane is not None:
                offer = known[to_int(lane)]
                before = len(self.jobs)
                words = (news or b"").decode().split()
                taken[offer.hash] = self._take(offer, packed, job_rows, turn="turn" in words)
                if words and words[0] != "turn":
                    within = float(words[0])
                    self.jobs[before:] = [
                        msgspec.structs.replace(job, start_within=within)
                        for job in self.jobs[before:]
                    ]
            elif news == b"unknown":
                # Given up for dead, or never there: the next time it introduces itself.
                self.state.registered.pop(self.worker.id, None)
                self.introduced = False
                return
            else:
                self._hear((news or b"").decode())
        for offer, guess in zip(offers, self.guesses, strict=True):
            want = self._most(offer.lane.task)
            jobs, parcels = taken.get(offer.hash, (0, 0))
            self.left -= jobs
            if self.sizes is not None and offer.lane.task in self.sizes:
                self.sizes[offer.lane.task] -= jobs
            if jobs < want and parcels < guess:
                self.claimable.exhausted(offer)
        if self.left > 0 and not self.claimable.lanes:
            self.claimable.forget()

    def _take(
        self, offer: PostgresLaneOffer, packed: Sequence[Any], job_rows: bytes | None, *, turn: bool
    ) -> tuple[int, int]:
        """How many jobs came out of a lane, and out of how many parcels."""
        before = len(self.jobs)
        if job_rows and turn:
            self._take_turns(offer, job_rows)
        elif job_rows:
            self._take_rows(offer, job_rows)
        lease, firsts, counts, lengths, bodies = packed
        if lease is None:
            return len(self.jobs) - before, 0
        self._take_parcels(offer, to_int(lease), firsts, counts, (lengths, bodies))
        return len(self.jobs) - before, len(firsts) // 16

    def _take_rows(self, offer: PostgresLaneOffer, ids: bytes) -> None:
        db = PostgresDb(self.connection)
        rows = db.execute(sql.claimed_rows, (ids,)).fetchall()
        jobs = [job_of(offer.lane, row) for row in rows]
        jobs.sort(key=lambda job: (job.run_at or 0.0, job.id))
        self.jobs += jobs
        offer.row_floor = max(offer.row_floor, jobs[-1].run_at or 0.0) if jobs else offer.row_floor

    def _take_turns(self, offer: PostgresLaneOffer, ids: bytes) -> None:
        """As they were picked; keys that had no turn yet have older ones: the floor stays."""
        rows = PostgresDb(self.connection).execute(sql.claimed_rows, (ids,)).fetchall()
        jobs = {row["id"]: job_of(offer.lane, row) for row in rows}
        self.jobs += [jobs[raw] for raw in to_ids(ids)]

    def _take_parcels(
        self,
        offer: PostgresLaneOffer,
        lease: int,
        firsts: bytes,
        counts: bytes,
        packed: tuple[bytes, bytes],
    ) -> None:
        numbers = array("H", counts)
        numbers.byteswap()
        bodies = split(*packed)
        lane, running, name, now = offer.lane, State.RUNNING, self.worker.id, self.now
        task, queue, version, priority = lane.task, lane.queue, lane.version, lane.priority
        runs_on, app = lane.runs_on, lane.app
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
                    app=app,
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
