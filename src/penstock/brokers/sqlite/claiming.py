"""Claim: due jobs are handed to a worker, oldest first, as far as rules allow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, cast

from penstock.broker.values import Claimed, Settlement, Wanted
from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import MOST_SUSPECTS
from penstock.brokers.sqlite.claim_rules import ClaimRules
from penstock.brokers.sqlite.claimable_lanes import ClaimableLane
from penstock.brokers.sqlite.db import SqliteDb
from penstock.brokers.sqlite.key_turns import Place
from penstock.brokers.sqlite.renewing import SqliteRenewals
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import durable
from penstock.brokers.tables.recovery import SettleWithin
from penstock.brokers.tables.rows import contents, job_of, lengths_of, made_at
from penstock.brokers.tables.worker_rows import expire, rules_in_force
from penstock.enqueue.ids import OFFSETS, from_bytes, offset_of, prefix_of
from penstock.job import Job, Lane, State
from penstock.rules.key_order import in_turn
from penstock.rules.rule import Rule


class _OneClaim:
    """What one claim took so far, and what it still has room for."""

    def __init__(self, limit: int, left: dict[str, int] | None, picking: ClaimRules | None) -> None:
        self.jobs: list[Job[Any]] = []
        self.room = limit
        self.looked = False
        self.short: set[int] = set()  # lanes that gave fewer jobs than they were asked for
        self._left = left  # of each task
        self._picking = picking

    def most_of(self, lane: Lane, most: int) -> int:
        """How many jobs to take from a lane: no more than its task may have, or rules allow."""
        want = min(most, self.room)
        if self._left is not None:
            want = min(want, self._left.get(lane.task, want))
        return want if self._picking is None else self._picking.most(lane, want)

    def took(self, offer: ClaimableLane, taken: Sequence[Job[Any]], want: int) -> None:
        self.jobs += taken
        self.room = 0 if _suspects(offer, taken) else self.room - len(taken)
        if self._left is not None and offer.lane.task in self._left:
            self._left[offer.lane.task] -= len(taken)
        if len(taken) < want:
            self.short.add(offer.hash)


class SqliteClaims:
    """Claim, with the settlements that ride along."""

    def __init__(
        self, store: SqliteStore, settle_within: SettleWithin, renewals: SqliteRenewals
    ) -> None:
        self.store = store
        self.clock = store.clock
        self._settle_within = settle_within
        self._renewals = renewals

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        settles = bool(settlements) and durable(self.store, (job.queue for job, _ in settlements))
        with self.store.writing(durable=settles) as db:
            change = Change(self.store, db, self.clock.now())
            accepted = self._settle_within(change, settlements) if settlements else []
            rules: list[Rule] = []
            if any(request.limit > 0 for request in wanted):
                expire(change)
                rules = rules_in_force(self.store, db, change.now)
            answers = [self._claim_for(change, request, rules) for request in wanted]
        change.after_commit()
        claimed = [jobs for jobs, _ in answers]
        once = [job.id for jobs in claimed for job in jobs if job.at_most_once]
        if once and not settles:
            # It must not start before its claim is on the disk: a durable commit carries it there.
            with self.store.writing() as db:
                db.execute(sql.put_meta, {"name": "burned", "value": once[-1]})
        times = [at for _, at in answers if at is not None]
        return Claimed(claimed, accepted, min(times, default=None))

    def _claim_for(
        self, change: Change, wanted: Wanted, rules: list[Rule]
    ) -> tuple[list[Job[Any]], float | None]:
        """The jobs, and when time alone gives this worker more to claim."""
        worker, limit, queues, sizes = wanted.worker, wanted.limit, wanted.queues, wanted.sizes
        if limit <= 0:
            return [], None
        claimable = self.store.claimable
        db, now = cast("SqliteDb", change.db), change.now
        self._renewals.keep_alive(db, worker, now)
        picking = ClaimRules(self.store, db, rules, now) if rules else None
        claim = _OneClaim(limit, None if sizes is None else dict(sizes), picking)

        def take(offer: ClaimableLane, most: int) -> int:
            want = claim.most_of(offer.lane, most)
            if want <= 0:
                return 0
            taken = self._take(change, offer, want, worker, picking)
            claim.took(offer, taken, want)
            return len(taken)

        while claim.room > 0 and not claim.looked:
            if not claimable.fresh(worker, queues, now):
                claimable.refresh(self.store, db, worker, queues, now)
                claim.looked = True
            claim.short.clear()
            lanes = claimable.lanes
            if picking is not None and picking.policies:
                lanes = in_turn(lanes, picking.policies, lambda offer: offer.lane)
            claimable.turns.hand_out(worker.id, lanes, claim.room, take)
            claimable.lanes = [offer for offer in claimable.lanes if offer.hash not in claim.short]
            if claim.room > 0:
                claimable.forget()
        change.finish()
        times = (claimable.next_due, None if picking is None else picking.finish())
        return claim.jobs, min((at for at in times if at is not None and at > now), default=None)

    def _take(
        self,
        change: Change,
        offer: ClaimableLane,
        want: int,
        worker: WorkerRow,
        picking: ClaimRules | None,
    ) -> list[Job[Any]]:
        """Up to `want` jobs of a lane, oldest first: due rows and parcels, merged."""
        db = cast("SqliteDb", change.db)
        due: list[Place] = []
        chosen: list[bytes] | None = None  # the rows to take before those that are merged
        if picking is not None and offer.loose and offer.lane.queue in picking.policies:
            _, parcels = self._merged(db, offer, [], want)
            packed = sum(max(1, parcel["jobs"]) for parcel in parcels)
            picked = picking.in_turn(offer, want, packed, self.store.claimable.cursors)
            due, want, chosen = picked.loose, picked.plain, picked.rows
        elif picking is not None and picking.by_job(offer.lane):
            due, chosen = picking.due(offer, want), []
        elif offer.loose:
            parameters = {"lane": offer.hash, "now": change.now, "limit": want}
            due = _first_suspects(db.execute(sql.claim_due, parameters))
        rows, parcels = self._merged(db, offer, due, want)
        jobs: list[Job[Any]] = []
        if chosen is not None:
            chosen += [raw for _, raw in due[:rows]]
        if rows or chosen:
            jobs = self._take_rows(change, offer, rows, worker, chosen)
        if parcels:
            most = MOST_SUSPECTS if parcels[0]["spared"] else want
            jobs += self._take_parcels(change, offer, parcels, min(most, want - rows), worker)
        return jobs if picking is None else picking.took(offer.lane, jobs)

    @staticmethod
    def _merged(
        db: SqliteDb, offer: ClaimableLane, due: Sequence[Place], want: int
    ) -> tuple[int, list[sqlite3.Row]]:
        """How many of the due rows, and which parcels, are the oldest `want` jobs together."""
        rows, left = 0, want
        parcels: list[sqlite3.Row] = []
        cursor = db.execute(sql.claim_parcels, (offer.hash,))
        for parcel in cursor:
            # All jobs of a lease have one attempt, and are suspects or not.
            if not parcels and parcel["spared"]:
                left = min(left, MOST_SUSPECTS)
            elif parcels and parcel[4:] != parcels[0][4:]:
                cursor.close()
                return rows, parcels
            head = (made_at(parcel["id"]), parcel["id"])
            while rows < len(due) and left and due[rows] < head:
                rows, left = rows + 1, left - 1
            if not left:
                break
            parcels.append(parcel)
            left -= min(left, max(1, parcel["jobs"]))
            if not left:
                break
        cursor.close()
        return rows + min(left, len(due) - rows), parcels

    def _take_rows(
        self,
        change: Change,
        offer: ClaimableLane,
        limit: int,
        worker: WorkerRow,
        picked: Sequence[bytes] | None,
    ) -> list[Job[Any]]:
        db, tally = change.db, change.tally
        parameters = {"lane": offer.hash, "now": change.now, "limit": limit, "worker": worker.id}
        jobs: list[Job[Any]] = []
        if picked is None:
            rows = db.execute(sql.claim, parameters).fetchall()
        else:
            sets = [{"id": raw, "now": change.now, "worker": worker.id} for raw in picked]
            rows = [row for row in db.each(sql.claim_one, sets) if row is not None]
        for row in rows:
            job = job_of(offer.lane, row)
            tally[offer.hash, State.READY, row["minute"]] -= 1
            if job.unique is not None:
                change.free(job, row["id"], "started")
            jobs.append(job)
        tally[offer.hash, State.RUNNING, 0] += len(jobs)
        if picked is not None:
            return jobs
        return sorted(jobs, key=lambda job: (job.run_at, job.id))

    def _take_parcels(
        self,
        change: Change,
        offer: ClaimableLane,
        parcels: Sequence[sqlite3.Row],
        limit: int,
        worker: WorkerRow,
    ) -> list[Job[Any]]:
        db, now, tally = change.db, change.now, change.tally
        ids: list[bytes] = []
        bodies: list[bytes] = []
        names: list[tuple[str, int, float, int]] = []  # of each parcel: prefix, offset, time, jobs
        emptied: list[dict[str, Any]] = []
        for first, count, lengths, packed, _, _ in parcels:
            parcel_ids, parcel_bodies = contents(first, count, lengths, packed)
            take = min(limit - len(ids), len(parcel_ids))
            ids += parcel_ids[:take]
            bodies += parcel_bodies[:take]
            name = from_bytes(first)
            names.append((prefix_of(name), offset_of(name), made_at(first), take))
            if take == len(parcel_ids):
                emptied.append({"id": first})
            else:
                rest = parcel_bodies[take:]
                db.execute(
                    sql.trim_parcel,
                    (parcel_ids[take], len(rest), lengths_of(rest), b"".join(rest), first),
                )
        if emptied:
            db.executemany(sql.take_parcel, emptied)
        attempt, spared = parcels[0]["attempt"] + 1, parcels[0]["spared"]
        lease = db.execute(
            sql.put_lease,
            (
                worker.id,
                offer.hash,
                now,
                b"".join(ids),
                lengths_of(bodies),
                b"".join(bodies),
                bytes(len(ids)),
                attempt,
                spared,
            ),
        ).fetchone()["id"]
        tally[offer.hash, State.READY, 0] -= len(ids)
        tally[offer.hash, State.RUNNING, 0] += len(ids)
        lane, running, name = offer.lane, State.RUNNING, worker.id
        task, queue, version, priority = lane.task, lane.queue, lane.version, lane.priority
        runs_on, app = lane.runs_on, lane.app
        jobs: list[Job[Any]] = []
        place = 0
        for prefix, first_offset, enqueued_at, count in names:
            # Not packed_jobs(...): this is the hot path, and a call costs 0.2 us a job.
            jobs += [
                Job(
                    task=task,
                    body=bodies[place + index],
                    id=prefix + OFFSETS[first_offset + index],
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
                    lease=(lease, place + index, ids[place + index]),
                )
                for index in range(count)
            ]
            place += count
        return jobs


def _suspects(offer: ClaimableLane, taken: Sequence[Job[Any]]) -> bool:
    """Whether suspects are among these: then the claim takes no more."""
    packed = bool(taken) and taken[-1].spared > 0
    return packed or (offer.loose and any(job.spared for job in taken))


def _first_suspects(rows: Iterable[sqlite3.Row]) -> list[Place]:
    """The places of due rows, up to as many suspects as one claim may hand out."""
    places: list[Place] = []
    suspects = 0
    for run_at, raw, spared in rows:
        suspects += spared > 0
        if suspects > MOST_SUSPECTS:
            break
        places.append((run_at, raw))
    return places
