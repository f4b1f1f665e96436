"""One claim, from the lanes that have work to the jobs it hands out: mostly one round trip.

An idle worker that was notified of a lane claims from it without a look; the others look first.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.postgres.binary_arrays import (
    float8_array_or_null,
    int4_array,
    int8_array,
    uuid_array,
)
from penstock.brokers.postgres.claimable_lanes import PostgresCandidateLane
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.function_calls import (
    BOOL,
    FLOAT8,
    FLOAT8_ARRAY,
    INT4,
    INT4_ARRAY,
    INT8_ARRAY,
    TEXT,
    UUID,
    UUID_ARRAY,
    Answer,
    Call,
    boolean,
    call,
    float8,
    int4,
    text,
    to_ids,
    to_int,
)
from penstock.brokers.postgres.settling import SETTLED
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb
from penstock.brokers.tables.flow_needs import Place
from penstock.brokers.tables.rows import ids_after, job_of, made_at, split
from penstock.enqueue.ids import OFFSETS, from_bytes, offset_of, prefix_of
from penstock.job import Job, Lane, State
from penstock.rules.queue_turns import Shared

if TYPE_CHECKING:
    from penstock.brokers.postgres.claiming import PostgresClaims

_WANTED = (
    TEXT,
    TEXT,
    FLOAT8,
    BOOL,
    INT8_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    UUID_ARRAY,
    FLOAT8_ARRAY,
    INT4,
    FLOAT8,
    FLOAT8,
)
_CLAIM = Call("claim", sql.claim, _WANTED)
_SETTLE_AND_CLAIM = Call("settle_and_claim", sql.settle_and_claim, (*SETTLED, *_WANTED, UUID, UUID))
_LAST_OF_NODE = "PN003"  # SQLSTATE
_LOOK = Call("look", sql.look, (FLOAT8, FLOAT8, INT8_ARRAY, UUID_ARRAY, FLOAT8_ARRAY))
_RENEW_AT = 1 / 3  # of its lease: a claim renews the worker as well
_RENEW_IDLE_AT = 0.6  # of its lease: a worker renews itself though there is nothing to claim


class LastOfNode(Exception):
    """Nothing was settled: with these jobs their node would end, which others may wait for."""


class ClaimRoundTrips:
    """As many round trips as one claim takes: a look, if the last is too old, and claims."""

    def __init__(self, claims: PostgresClaims, connection: Connection, wanted: Wanted) -> None:
        self.claims = claims
        self.store = claims.store
        self.claimable = claims.store.claimable
        self.connection = connection
        self.worker = wanted.worker
        self.queues = wanted.queues
        self.left = wanted.limit
        self.sizes = None if wanted.sizes is None else dict(wanted.sizes)
        self.accepted: list[bool] = []
        self.jobs: list[Job[Any]] = []
        self.now = claims.clock.now()
        self.looked = False
        self.looked_from_bottom = False
        self.registered = False  # the server has checked or written the worker's row
        self.limited = False  # limits cover some of the jobs
        self.ordered = False  # or an order per key
        self.suspects = False  # some jobs were spared a lapse before: nothing more is claimed
        self.cut: set[int] = set()  # lanes that gave fewer jobs, since those were claimed before
        self.guesses: list[int] = []  # parcels asked for, of each candidate
        self.shares: dict[str, int] = {}  # the most jobs of each queue that shares this round trip
        self._taken: Counter[str] = Counter()  # jobs of each queue

    def settle_and_claim(
        self, settled: tuple[bytes | None, ...], node: Place | None = None
    ) -> None:
        """Settle successes of one lease of this worker, and claim, in one round trip.

        With `node`, the jobs are all of one node of a flow; see `LastOfNode`.
        """
        # Where no work is known, the outcomes do not wait for a look: that comes afterwards.
        known = self._take_announced() or self.claimable.lanes
        candidates = self._candidates() if known else Shared[PostgresCandidateLane]([])
        values = (*settled, *self._parameters(candidates), *(node or (None, None)))
        try:
            rows = call(self.connection, _SETTLE_AND_CLAIM, values)
        except psycopg.Error as error:
            if error.sqlstate != _LAST_OF_NODE:
                raise
            self.claims.registered.pop(self.worker.id, None)  # its row was rolled back, too
            raise LastOfNode from error
        self.accepted = [bool(mark) for mark in rows[0][5] or b""]
        self._read_answer(rows[1:], candidates)
        if self.limited and not self.jobs:
            # The look was before these jobs ended and made room under a limit.
            self.looked = self.looked_from_bottom = False

    def claim_more(self) -> None:
        """Claim until there is enough, or nothing left."""
        while self.left > 0 and not self.suspects:
            if self.jobs and not self.claimable.lanes:
                return  # these start now; whether there is more, the next claim asks
            candidates = self._candidates()
            if not candidates.lanes and (self.registered or not self._declared(_RENEW_IDLE_AT)):
                return
            rows = call(self.connection, _CLAIM, self._parameters(candidates))
            self._read_answer(rows, candidates)
            if not candidates.lanes:
                return

    def next_at(self) -> float | None:
        """When time alone gives this worker more to claim."""
        return self.claimable.next_at(self.worker, self.queues, self.now)

    def finish(self) -> None:
        """Remember which queues had their turn."""
        self.claimable.turns.took(self.worker.id, self._taken)

    def _candidates(self) -> Shared[PostgresCandidateLane]:
        claimable = self.claimable
        fresh = self.looked or claimable.fresh(self.now)
        if not fresh and not self._take_announced():
            self._look(bottom=claimable.bottom_due())
        best = claimable.best(self.worker, self.queues, self.sizes, self.now)
        # Nobody is told that there is nothing without a look from the bottom; except a worker that
        # is busy with tasks it wants no more of: it asks again all the time.
        sizes = () if self.sizes is None else self.sizes.values()
        busy = self.worker.running > 0 and 0 in sizes and not claimable.bottom_due()
        if not best.lanes and not self.looked_from_bottom and not busy:
            self._look(bottom=True)
            best = claimable.best(self.worker, self.queues, self.sizes, self.now)
        return best

    def _take_announced(self) -> bool:
        """Claim from the lanes that were announced, without a look; whether that will do."""
        if not self.jobs and self.claimable.take_announced(self.store.lanes, self.now):
            self.looked = True
            return True
        return False

    def _look(self, *, bottom: bool) -> None:
        store = self.store
        self.looked = True
        self.looked_from_bottom = self.looked_from_bottom or bottom
        began = time.monotonic()
        times = (float8(self.now), float8(store.lease_time()))
        if bottom:
            start: tuple[bytes | None, ...] = (None, None, None)
        else:
            lanes, floors, row_floors = self.claimable.floors()
            start = (int8_array(lanes), uuid_array(floors), float8_array_or_null(row_floors))
        rows = call(self.connection, _LOOK, (*times, *start))
        seconds = time.monotonic() - began
        store.load_lanes(self.connection, [to_int(row[0]) for row in rows if row[0] is not None])
        db = PostgresDb(self.connection)
        self.claimable.learn(
            rows, lambda lane: store.lane(db, lane), self.now, seconds=seconds, bottom=bottom
        )
        self._read_news(b" ".join(row[4] for row in rows if row[4] and row[0] is None).decode())

    def _read_news(self, news: str) -> None:
        """The words that a look or a claim answers beside lanes; see functions/claim.sql."""
        self.limited = self.limited or "limited" in news
        self.ordered = self.ordered or "ordered" in news
        if self.limited or self.ordered:
            self.claimable.held_back()
        for word in news.split():
            if word.startswith("free="):
                self.claimable.limit_frees_at(self.now + float(word.removeprefix("free=")))
        self.claims.on_news(news, self.now)

    def _declared(self, renew_at: float = _RENEW_AT) -> str | None:
        """The worker's row as JSON; None if the same was written within this part of its lease."""
        worker = self.worker
        known, at = self.claims.registered.get(worker.id, (None, 0.0))
        same = known is not None and _declaration(known) == _declaration(worker)
        if same and 0 <= self.now - at < worker.lease * renew_at:
            return None
        return msgspec.json.encode(
            msgspec.structs.replace(worker, tags=frozenset(sorted(worker.tags)))
        ).decode()

    def _parameters(self, shared: Shared[PostgresCandidateLane]) -> tuple[bytes | None, ...]:
        declared = self._declared()
        if declared is not None:
            self.claims.registered[self.worker.id] = (self.worker, self.now)
        candidates, queues = shared
        tasks = list(dict.fromkeys(candidate.lane.task for candidate in candidates))
        sizes = [self._most(task) for task in tasks]
        self.shares = dict.fromkeys(queues, max(1, self.left // max(1, len(queues))))
        self.guesses = [candidate.guess(self._most_of(candidate.lane)) for candidate in candidates]
        return (
            text(self.worker.id),
            text(declared),
            float8(self.worker.lease),
            boolean(self.store.listener.receiving),
            int8_array([candidate.hash for candidate in candidates]),
            int4_array([tasks.index(candidate.lane.task) + 1 for candidate in candidates]),
            int4_array(sizes),
            int4_array([queues.index(candidate.lane.queue) + 1 for candidate in candidates])
            if queues
            else None,
            int4_array(self.shares.values()) if queues else None,
            int4_array(self.guesses),
            uuid_array([candidate.floor for candidate in candidates]),
            float8_array_or_null(
                [candidate.row_floor if candidate.loose else None for candidate in candidates]
            ),
            int4(self.left),
            float8(self.now),
            float8(self.store.lease_time()),
        )

    def _most(self, task: str) -> int:
        if self.sizes is None:
            return self.left
        return max(0, min(self.left, self.sizes.get(task, self.left)))

    def _most_of(self, lane: Lane) -> int:
        """The most jobs of a lane: of its task, and of its queue's share."""
        return min(self._most(lane.task), self.shares.get(lane.queue, self.left))

    def _read_answer(self, rows: Answer, shared: Shared[PostgresCandidateLane]) -> None:
        candidates = shared.lanes
        known = {candidate.hash: candidate for candidate in candidates}
        taken: dict[int, tuple[int, int]] = {}  # of a lane: jobs, and parcels that they came from
        self.cut.clear()
        self.registered = True
        for lane, *packed, job_rows, news in rows:
            words = (news or b"").decode().split()
            if lane is not None:
                candidate = known[to_int(lane)]
                taken[candidate.hash] = self._take(candidate, packed, job_rows, words)
            elif news == b"unknown":
                # Given up for dead, or never registered: the next call registers it.
                self.claims.registered.pop(self.worker.id, None)
                self.registered = False
                return
            else:
                self._read_news(" ".join(words))
        for candidate, guess in zip(candidates, self.guesses, strict=True):
            most, queue = self._most_of(candidate.lane), candidate.lane.queue
            jobs, parcels = taken.get(candidate.hash, (0, 0))
            self.left -= jobs
            self._taken[queue] += jobs
            if queue in self.shares:
                self.shares[queue] -= jobs
            if self.sizes is not None and candidate.lane.task in self.sizes:
                self.sizes[candidate.lane.task] -= jobs
            if jobs < most and parcels < guess and candidate.hash not in self.cut:
                self.claimable.exhausted(candidate)
        if self.left > 0 and not self.claimable.lanes:
            self.claimable.look_again()

    def _take(
        self,
        candidate: PostgresCandidateLane,
        packed: Sequence[Any],
        job_rows: bytes | None,
        words: Sequence[str],
    ) -> tuple[int, int]:
        """Add the jobs of one lane: how many, and out of how many parcels."""
        before, parcels = len(self.jobs), 0
        if job_rows:
            self._take_rows(candidate, job_rows, by_key="turn" in words)
            if any(job.spared for job in self.jobs[before:]):
                self.suspects = True
                self.cut.add(candidate.hash)
        lease, firsts, counts, lengths, bodies = packed
        if lease is not None:
            again = dict(word.split("=") for word in words if "=" in word)
            counters = int(again.get("attempt", 1)), int(again.get("spared", 0))
            held = to_int(lease), firsts, counts
            self._take_parcels(candidate, held, split(lengths, bodies), counters)
            parcels = len(firsts) // 16
            self.suspects = self.suspects or counters[1] > 0
            if again:
                self.cut.add(candidate.hash)
        if words and words[0][0].isdigit():  # a rate limit says how soon its jobs must start
            within = float(words[0])
            self.jobs[before:] = [
                msgspec.structs.replace(job, start_within=within) for job in self.jobs[before:]
            ]
        return len(self.jobs) - before, parcels

    def _take_rows(self, candidate: PostgresCandidateLane, ids: bytes, *, by_key: bool) -> None:
        rows = PostgresDb(self.connection).execute(sql.claimed_rows, (ids,)).fetchall()
        jobs = {row["id"]: job_of(candidate.lane, row) for row in rows}
        if by_key:
            # In the order of their turns. Keys that had none yet have older jobs: the floor stays.
            self.jobs += [jobs[raw] for raw in to_ids(ids)]
            return
        in_order = sorted(jobs.values(), key=lambda job: (job.run_at or 0.0, job.id))
        self.jobs += in_order
        if in_order:
            candidate.row_floor = max(candidate.row_floor, in_order[-1].run_at or 0.0)

    def _take_parcels(
        self,
        candidate: PostgresCandidateLane,
        held: tuple[int, bytes, bytes],
        bodies: Sequence[bytes],
        counters: tuple[int, int],
    ) -> None:
        lease, firsts, counts = held
        attempt, spared = counters
        numbers = array("H", counts)
        numbers.byteswap()
        lane, running, name, now = candidate.lane, State.RUNNING, self.worker.id, self.now
        task, queue, version, priority = lane.task, lane.queue, lane.version, lane.priority
        runs_on, app = lane.runs_on, lane.app
        place = 0  # of the next job in the lease
        for index, count in enumerate(numbers):
            first = firsts[16 * index : 16 * index + 16]
            text = from_bytes(first)
            prefix, offset, enqueued_at = prefix_of(text), offset_of(text), made_at(first)
            ids = [first] if count == 1 else ids_after(first, count)
            # Written out instead of calling packed_jobs: 0.2 us a job count on this path.
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
                    attempt=attempt,
                    spared=spared,
                    enqueued_at=enqueued_at,
                    claimed_at=now,
                    worker=name,
                    lease=(lease, place + step, ids[step]),
                )
                for step in range(count)
            ]
            place += count
        # Never beyond what was taken: a floor may only skip what is gone.
        candidate.floor = self.jobs[-1].lease[2]
        candidate.per_parcel = max(1.0, (candidate.per_parcel + place / len(numbers)) / 2)


def _declaration(worker: WorkerRow) -> tuple[object, ...]:
    """What must be written again at once when it changes."""
    return worker.app, worker.tasks, worker.tags, worker.queues, worker.lease
