"""Look after: what a person or a chore does to jobs, with an event for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.views import recorded
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row
from penstock.brokers.tables.flow_needs import (
    Ends,
    Place,
    cancelled_by_needs,
    hopeless,
    lock_flows,
    nodes_at,
    place_of,
    revived_job,
    take_back_ends,
)
from penstock.brokers.tables.rows import (
    ASKED,
    SETTLED,
    contents,
    job_of,
    leased_jobs,
    lengths_of,
    packed_jobs,
    row_of,
    rule_place,
    run_of,
    succeeded_job,
)
from penstock.brokers.tables.settling import StoreT
from penstock.brokers.tables.worker_rows import Working
from penstock.enqueue.ids import to_bytes
from penstock.flows.flow import WAIT_TASK
from penstock.job import ENDED, Job, Outcome, State, lapsed, put_back
from penstock.rules.key_order import check_same
from penstock.rules.rule import Rule, RuleKind, check_rule

_BAD = frozenset({State.FAILED, State.CANCELLED})
Touched = tuple[Job[Any], int]  # a job as it stands now, and its lane
Act = Callable[[Change, Sequence[bytes]], dict[bytes, Touched]]


class JobActions(Working[StoreT]):
    """Recover, what cancel, retry and delete do to jobs one by one, and rules."""

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        self.store.follow()
        now, lease_time = self.clock.now(), self.store.lease_time()
        moved = 0
        with self.store.writing() as db:
            change = Change(self.store, db, now)
            self._expire(change)
            change.finish()
            if dead is not None:
                gone = [dead]
            elif by is None or self._was_alive(db, by, lease_time):
                parameters = {"boot": self.store.boot, "lease_time": lease_time}
                gone = [row["id"] for row in db.execute(self.store.sql.recover, parameters)]
            else:
                gone = []
            # All at once: leases are locked before the flows that their jobs are in.
            held = [job for worker in gone for job in self._held(db, worker)]
            self._settle(change, [(job, _given_up(job, started)) for job in held])
            for worker in gone:
                db.execute(self.store.sql.give_up_worker, {"id": worker, "now": now})
            moved = len(held)
        if moved or change.woken:
            self._look_again()
            self._ring()
        return moved

    def _was_alive(self, db: Db, worker: str, lease_time: float) -> bool:
        """Whether this worker saw its whole last lease, and so may judge others."""
        found = db.execute(self.store.sql.worker, (worker,)).fetchone()
        return (
            found is not None
            and not found["gone"]
            and found["boot"] == self.store.boot
            and found["alive_until"] > lease_time
            and lease_time - found["alive_since"] >= found["lease"]
        )

    def _each(self, ids: Sequence[str], kind: str, told: Mapping[str, str], act: Act) -> list[str]:
        """Do it to every job it applies to, and note who asked, in one transaction."""
        data = msgspec.json.encode(told)
        wanted = {job_id: to_bytes(job_id) for job_id in ids}
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            touched = act(change, list(wanted.values()))
            done = [job_id for job_id, raw in wanted.items() if raw in touched]
            for job, lane in touched.values():
                change.happened(kind, data, job, lane)
            change.finish()
        if done:
            self._look_again()
            self._ring()
        return done

    def _cancel(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        touched = self._cancel_moving(change, wanted)
        return touched | self._cancel_still(change, [raw for raw in wanted if raw not in touched])

    def _cancel_moving(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        # A job goes from its parcel to a lease to a row, never back: looked for in this order, and
        # once more among the rows, one that moves on meanwhile is not missed.
        touched: dict[bytes, Touched] = {}
        for raw, (job, lane) in self._unpack(change, wanted).items():
            ended = msgspec.structs.replace(
                job, state=State.CANCELLED, reason="cancelled", ended_at=change.now
            )
            change.rows.append(row_of(ended, lane, run_at=job.enqueued_at))
            change.tally[lane, State.CANCELLED, 0] += 1
            change.member_ended(job.body, good=False)
            touched[raw] = ended, lane
        left = self._moving(change.db, [raw for raw in wanted if raw not in touched])
        rows = self._in_order(change.db, left)
        touched |= self._cancel_rows(change, rows)
        left = [raw for raw in left if raw not in rows]
        for raw in sorted(left):
            for lease, offset in self._leased(change.db, self.store.sql.locked_leases, raw):
                marks = bytearray(lease["marks"])
                marks[offset] = ASKED
                change.db.execute(self.store.sql.mark_lease, (bytes(marks), lease["id"]))
                touched[raw] = self._packed(change.db, lease, offset), lease["lane"]
        left = self._moving(change.db, [raw for raw in left if raw not in touched])
        return touched | self._cancel_rows(change, self._in_order(change.db, left))

    def _cancel_still(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        """Those that wait in a flow: their locks come last."""
        waiting = self._members_among(change.db, wanted)
        return self._cancel_rows(change, self._locked_rows(change.db, list(waiting)))

    def _moving(self, db: Db, wanted: Sequence[bytes]) -> list[bytes]:
        still = self._members_among(db, wanted)
        return [raw for raw in wanted if raw not in still]

    def _members_among(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Place]:  # noqa: ARG002
        """Those that a settlement in their flow may change; none where one writes at a time."""
        return {}

    def _cancel_rows(self, change: Change, rows: Mapping[bytes, Row]) -> dict[bytes, Touched]:
        touched: dict[bytes, Touched] = {}
        told: list[tuple[bytes]] = []
        for raw, row in rows.items():
            job = job_of(self.store.lane(change.db, row["lane"]), row)
            if job.state is State.RUNNING:
                told.append((raw,))
                touched[raw] = job, row["lane"]
            elif job.state not in ENDED:
                touched[raw] = self._end_row(change, row, "cancelled"), row["lane"]
        if told:
            change.db.executemany(self.store.sql.ask_cancel, told)
        return touched

    def _retry(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        return self._retry_rows(change, self._locked_rows(change.db, wanted))

    def _retry_rows(self, change: Change, rows: Mapping[bytes, Row]) -> dict[bytes, Touched]:
        ended = [row for row in rows.values() if row["state"] in _BAD]
        places = {row["id"]: place for row in ended if (place := place_of(row["body"]))}
        nodes = nodes_at(change, set(places.values())) if places else {}
        # Nobody asks for those who need somebody that is gone: they would wait for ever.
        undecided = {row["flow"] for row in nodes.values() if cancelled_by_needs(row)}
        left = {node for flow in undecided for node in hopeless(change, flow)}
        again = {
            raw: row
            for raw, row in rows.items()
            if (raw not in places or places[raw][1] not in left)
            and self._may_run_again(change, raw, row)
        }
        touched: dict[bytes, Touched] = {}
        ends: Ends = {}
        for raw, row in again.items():
            if row["state"] == State.READY:
                touched[raw] = self._due_now(change, row), row["lane"]
                continue
            place = places.get(raw)
            node = nodes.get(place[1]) if place else None
            state = State.READY if node is None or node["freed"] else State.WAITING
            if self.store.lane(change.db, row["lane"]).task == WAIT_TASK:
                state = State.WAITING  # for its signal, whatever the node says
            touched[raw] = revived_job(change, row, state), row["lane"]
            if place is not None and node is not None:
                jobs = ends.get(place, (0, 0))[0] + 1
                ends[place] = jobs, jobs
        for statement, some in (
            (self.store.sql.retry, [raw for raw in touched if rows[raw]["state"] != State.READY]),
            (
                self.store.sql.retry_later,
                [raw for raw in touched if rows[raw]["state"] == State.READY],
            ),
        ):
            sets = [{"id": raw, "state": touched[raw][0].state, "now": change.now} for raw in some]
            if sets:
                change.db.executemany(statement, sets)
        return touched | take_back_ends(change, ends)

    def _may_run_again(self, change: Change, raw: bytes, row: Row) -> bool:
        """Whether the job is one to be retried; then its unique key is its own."""
        db, now = change.db, change.now
        job = job_of(self.store.lane(db, row["lane"]), row)
        if job.state is State.READY:
            return row["run_at"] > now
        if job.state not in {State.FAILED, State.CANCELLED}:
            return False
        if job.unique is None:
            return True
        parameters = {"key": job.unique.key, "now": now}
        holder = db.execute(self.store.sql.unique_holder, parameters).fetchone()
        if holder is not None:
            return holder["job"] == raw
        return self._take_unique(change, job, raw)

    def _due_now(self, change: Change, row: Row) -> Job[Any]:
        """A job that waits for a later time is due now."""
        job = job_of(self.store.lane(change.db, row["lane"]), row)
        change.tally[row["lane"], job.state, row["minute"]] -= 1
        change.tally[row["lane"], State.READY, 0] += 1
        return msgspec.structs.replace(job, run_at=change.now, reason=None)

    def _delete(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        db, sql = change.db, self.store.sql
        touched = self._unpack(change, wanted)
        for job, _ in touched.values():
            change.member_ended(job.body, good=False)
        left = [raw for raw in wanted if raw not in touched]
        rows = self._locked_rows(db, left)
        for raw, row in rows.items():
            job = job_of(self.store.lane(db, row["lane"]), row)
            if job.state is not State.RUNNING:
                if job.state not in ENDED:
                    change.member_ended(job.body, good=False)
                elif place := place_of(job.body):
                    change.lost.add(place)
                change.tally[row["lane"], job.state, row["minute"]] -= 1
                change.free(job, raw, "ended")
                change.free(job, raw, "started")
                change.deleted.append((raw,))
                touched[raw] = job, row["lane"]
        left = [raw for raw in left if raw not in rows]
        for raw, row in zip(left, db.each(sql.succeeded, [(raw,) for raw in left]), strict=True):
            if row is not None:
                touched[raw] = succeeded_job(self.store.lane(db, row["lane"]), row), row["lane"]
        # Arguments, result and notes go; the record that it ran stays.
        forgotten = [{"first": raw, "last": raw} for raw in touched]
        if forgotten:
            db.executemany(sql.forget_bodies, forgotten)
            db.executemany(sql.forget_notes, forgotten)
        return touched

    def _locked_rows(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Row]:
        """The jobs' own rows, in the order asked for."""
        # Locked in the order of ids: two callers with ids in common cannot deadlock. But
        # those in flows after the locks of these, which come after the rows of jobs that run.
        later = self._members_among(db, wanted)
        first = self._in_order(db, [raw for raw in wanted if raw not in later])
        lock_flows(db, self.store.sql, later.values())
        rows = first | self._in_order(db, later)
        return {raw: rows[raw] for raw in wanted if raw in rows}

    def _in_order(self, db: Db, wanted: Iterable[bytes]) -> dict[bytes, Row]:
        in_order = sorted(wanted)
        found = db.each(self.store.sql.locked_row, [(raw,) for raw in in_order])
        rows = zip(in_order, found, strict=True)
        return {raw: row for raw, row in rows if row is not None}

    def _unpack(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        """Take jobs out of their parcels; what stood between them become parcels."""
        db, sql = change.db, self.store.sql
        in_order = sorted(wanted)
        parcels = db.each(sql.locked_parcel, [(run_of(raw), raw) for raw in in_order])
        found: dict[bytes, Row] = {}
        leaving: dict[bytes, list[bytes]] = defaultdict(list)
        for raw, parcel in zip(in_order, parcels, strict=True):
            if parcel is not None:
                found[parcel["id"]] = parcel
                leaving[parcel["id"]].append(raw)
        return self._take_out(change, found, leaving)

    def _take_out(
        self, change: Change, found: Mapping[bytes, Row], leaving: Mapping[bytes, Sequence[bytes]]
    ) -> dict[bytes, Touched]:
        """Of these parcels, the jobs that are leaving, in order; the rest is written anew."""
        db, sql = change.db, self.store.sql
        unpacked: dict[bytes, Touched] = {}
        rest: list[tuple[bytes, int, int, bytes, bytes]] = []
        for first, parcel in found.items():
            lane = parcel["lane"]
            ids, bodies = contents(first, parcel["jobs"], parcel["lengths"], parcel["bodies"])
            begin = int.from_bytes(first[14:], "big")
            offsets = (int.from_bytes(raw[14:], "big") - begin for raw in leaving[first])
            places = [offset for offset in offsets if offset < len(ids)]
            if not places:
                continue
            db.execute(sql.take_parcel, {"lane": lane, "id": first})
            for start, end in zip(
                [0, *(at + 1 for at in places)], [*places, len(ids)], strict=True
            ):
                if part := bodies[start:end]:
                    rest.append((ids[start], lane, len(part), lengths_of(part), b"".join(part)))
            change.tally[lane, State.READY, 0] -= len(places)
            jobs = packed_jobs(
                self.store.lane(db, lane), [ids[at] for at in places], [bodies[at] for at in places]
            )
            unpacked.update((ids[at], (job, lane)) for at, job in zip(places, jobs, strict=True))
        if rest:
            db.executemany(sql.enqueue_parcel, rest)
        return unpacked

    def _parcel_of(self, db: Db, raw: bytes) -> tuple[Row, list[bytes], list[bytes]] | None:
        """The parcel that holds this id, with its ids and bodies."""
        parcel = db.execute(self.store.sql.parcel_before, (run_of(raw), raw)).fetchone()
        if parcel is None:
            return None
        ids, bodies = contents(parcel["id"], parcel["jobs"], parcel["lengths"], parcel["bodies"])
        return (parcel, ids, bodies) if raw in ids else None

    def _leased(self, db: Db, statement: str, raw: bytes) -> list[tuple[Row, int]]:
        """The lease that holds this id, as the statement finds it, with its place in there."""
        found: list[tuple[Row, int]] = []
        for lease in db.execute(statement, (raw,)).fetchall():
            place = lease["ids"].find(raw)
            while place >= 0 and place % 16:
                place = lease["ids"].find(raw, place + 1)
            if place >= 0 and lease["marks"][place // 16] != SETTLED:
                found.append((lease, place // 16))
        return found

    def _packed(self, db: Db, lease: Row, offset: int) -> Job[Any]:
        for _, job in leased_jobs(self.store.lane(db, lease["lane"]), lease):
            if job.lease[1] == offset:
                return job
        raise LookupError(offset)

    def record(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        says = msgspec.json.encode(recorded(kind, author, reason, data))
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            change.happened(kind, says, None, None)
            change.finish()

    def set_rule(self, rule: Rule) -> Rule:
        check_rule(rule)
        with self.store.writing() as db:
            now = self.clock.now()
            made = db.execute(
                self.store.sql.set_rule,
                {
                    **rule_place(rule),
                    "author": rule.author,
                    "reason": rule.reason,
                    "created_at": rule.created_at or now,
                    "now": now,
                    "until": rule.until,
                    "running": rule.running,
                    "rate_jobs": rule.rate and rule.rate[0],
                    "rate_seconds": rule.rate and rule.rate[1],
                    "policy": rule.policy,
                },
            ).fetchone()
            if rule.queue is not None:
                check_same(rule.queue, made["policy"], rule.policy)
            rule = msgspec.structs.replace(rule, created_at=made["created_at"])
            change = Change(self.store, db, now)
            change.happened("rule", _rule_data(rule, in_force=True), None, None)
            change.finish()
        holds = rule.kind in {RuleKind.PAUSE, RuleKind.BLOCK}
        self.store.rules_changed(stop=holds)
        if not holds:
            self._ring()  # a limit that was raised lets more start
        return rule

    def clear_rule(
        self,
        kind: RuleKind,
        queue: str | None = None,
        task: str | None = None,
        author: str = "",
        reason: str = "",
        *,
        version: int | None = None,
        tag: tuple[str, str] | None = None,
        key: str | None = None,
        per_key: bool = False,
    ) -> bool:
        place = (kind, queue, task, version, tag, key, per_key)
        with self.store.writing() as db:
            now = self.clock.now()
            found = [rule for rule in self._rules_in_force(db, now) if rule.place == place]
            cleared = 0
            for rule in found:
                parameters = {**rule_place(rule), "now": now}
                cleared = db.execute(self.store.sql.clear_rule, parameters).rowcount
            if cleared:
                rule = msgspec.structs.replace(found[0], author=author, reason=reason)
                data = _rule_data(rule, in_force=False)
                change = Change(self.store, db, now)
                change.happened("rule", data, None, None)
                change.finish()
        if cleared:
            self.store.rules_changed(stop=False)
            self._ring()
        return bool(cleared)


def _given_up(job: Job[Any], started: Collection[str] | None) -> Outcome:
    if started is None or job.id in started:
        return lapsed()
    return put_back("crashed")


def _rule_data(rule: Rule, *, in_force: bool) -> bytes:
    return msgspec.json.encode(rule.data(in_force=in_force))
