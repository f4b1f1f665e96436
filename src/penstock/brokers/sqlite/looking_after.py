"""Look after: what a person or a chore does to jobs, with an event for each."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from penstock.brokers.sqlite.change import Change
from penstock.brokers.sqlite.rows import (
    ASKED,
    SETTLED,
    contents,
    job_of,
    leased_jobs,
    lengths_of,
    packed_jobs,
    row_of,
    succeeded_job,
)
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import Db
from penstock.brokers.sqlite.working import Working
from penstock.ids import to_bytes
from penstock.job import ENDED, Job, Outcome, State, lapsed, put_back
from penstock.rule import Rule, RuleKind

STARTING_SECONDS = 0.005
PRUNED_AT_ONCE = 1000  # about 10 ms
PRUNE_REST_SECONDS = 0.001

Touched = tuple[Job[Any], int]  # a job as it stands now, and its lane
Act = Callable[[Change, bytes], Touched | None]


class LookingAfter(Working):
    """Recover, prune, cancel, retry, delete, and rules."""

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        self.store.follow()
        now, monotonic = self.clock.now(), self.clock.monotonic()
        moved = 0
        with self.store.writing() as db:
            change = Change(db, now)
            self._expire(change)
            change.finish()
            if dead is not None:
                gone = [dead]
            elif by is None or self._was_alive(db, by, monotonic):
                parameters = {"boot": self.store.boot, "monotonic": monotonic}
                gone = [row["id"] for row in db.execute(sql.recover, parameters)]
            else:
                gone = []
            for worker in gone:
                held = self._held(db, worker)
                self._settle(db, [(job, _given_up(job, started)) for job in held])
                db.execute(sql.give_up_worker, {"id": worker, "now": now})
                moved += len(held)
        if moved:
            self.offers.forget()
            self.bell.ring()
        return moved

    def _was_alive(self, db: Db, worker: str, monotonic: float) -> bool:
        """Whether this worker saw its whole last lease, and so may judge others."""
        found = db.execute(sql.worker, (worker,)).fetchone()
        return (
            found is not None
            and not found["gone"]
            and found["boot"] == self.store.boot
            and found["alive_until"] > monotonic
            and monotonic - found["alive_since"] >= found["lease"]
        )

    def cancel(self, ids: Sequence[str], author: str = "", reason: str = "") -> list[str]:
        return self._each(ids, "cancel", author, reason, self._cancel)

    def retry(self, ids: Sequence[str], author: str = "", reason: str = "") -> list[str]:
        return self._each(ids, "retry", author, reason, self._retry)

    def delete(self, ids: Sequence[str], author: str = "", reason: str = "") -> list[str]:
        return self._each(ids, "delete", author, reason, self._delete)

    def _each(self, ids: Sequence[str], kind: str, author: str, reason: str, act: Act) -> list[str]:
        """Do it to every job it applies to, and note who asked, in one transaction."""
        data = msgspec.json.encode({"author": author, "reason": reason})
        done: list[str] = []
        with self.store.writing() as db:
            change = Change(db, self.clock.now())
            for job_id in dict.fromkeys(ids):
                touched = act(change, to_bytes(job_id))
                if touched is not None:
                    change.happened(kind, data, *touched)
                    done.append(job_id)
            change.finish()
        if done:
            self.offers.forget()
            self.bell.ring()
        return done

    def _cancel(self, change: Change, raw: bytes) -> Touched | None:
        db = change.db
        row = db.execute(sql.get, (raw,)).fetchone()
        if row is not None:
            job = job_of(self.store.lane(db, row["lane"]), row)
            if job.state in ENDED:
                return None
            if job.state is State.RUNNING:
                db.execute(sql.ask_cancel, (raw,))
                return job, row["lane"]
            return self._end_row(change, row, "cancelled"), row["lane"]
        if (found := self._unpack(change, raw)) is not None:
            job, lane = found
            ended = msgspec.structs.replace(
                job, state=State.CANCELLED, reason="cancelled", ended_at=change.now
            )
            db.execute(sql.enqueue, row_of(ended, lane, run_at=job.enqueued_at))
            change.tally[lane, State.CANCELLED, 0] += 1
            return ended, lane
        for lease, offset in self._leased(db, raw):
            marks = bytearray(lease["marks"])
            marks[offset] = ASKED
            db.execute(sql.mark_lease, (bytes(marks), lease["id"]))
            return self._packed(db, lease, offset), lease["lane"]
        return None

    def _retry(self, change: Change, raw: bytes) -> Touched | None:
        db, now = change.db, change.now
        row = db.execute(sql.get, (raw,)).fetchone()
        if row is None:
            return None
        job = job_of(self.store.lane(db, row["lane"]), row)
        later = job.state is State.READY and row["run_at"] > now
        if job.state not in {State.FAILED, State.CANCELLED} and not later:
            return None
        if job.unique is not None and job.state in ENDED:
            parameters = {"key": job.unique.key, "now": now}
            holder = db.execute(sql.unique_holder, parameters).fetchone()
            if holder is not None and holder["job"] != raw:
                return None
            if holder is None:
                self._take_unique(change, job, raw)
        change.tally[row["lane"], job.state, row["minute"]] -= 1
        change.tally[row["lane"], State.READY, 0] += 1
        db.execute(sql.retry_later if later else sql.retry, {"id": raw, "now": now})
        again = msgspec.structs.replace(job, state=State.READY, run_at=now, reason=None)
        if not later:
            again = msgspec.structs.replace(again, failures=0, lapses=0, repeats=0)
        return again, row["lane"]

    def _delete(self, change: Change, raw: bytes) -> Touched | None:
        db = change.db
        row = db.execute(sql.get, (raw,)).fetchone()
        if row is not None:
            job = job_of(self.store.lane(db, row["lane"]), row)
            if job.state is State.RUNNING:
                return None
            change.tally[row["lane"], job.state, row["minute"]] -= 1
            self._free_unique(db, job, raw, "ended")
            self._free_unique(db, job, raw, "started")
            db.execute(sql.delete, (raw,))
            self._forget(db, raw)
            return job, row["lane"]
        if (found := self._unpack(change, raw)) is not None:
            self._forget(db, raw)
            return found
        row = db.execute(sql.succeeded, (raw,)).fetchone()
        if row is None:
            return None
        self._forget(db, raw)
        return succeeded_job(self.store.lane(db, row["lane"]), row), row["lane"]

    def _forget(self, db: Db, raw: bytes) -> None:
        """Arguments, result and notes go; the record that it ran stays."""
        db.execute(sql.forget_body, (raw,))
        db.execute(sql.forget_notes, (raw,))

    def _parcel_of(self, db: Db, raw: bytes) -> tuple[sqlite3.Row, list[bytes], list[bytes]] | None:
        """The parcel that holds this id, with its ids and bodies."""
        tail = int.from_bytes(raw[14:], "big")
        run = raw[:14] + (tail & 0xF000).to_bytes(2, "big")
        parcel = db.execute(sql.parcel_before, (run, raw)).fetchone()
        if parcel is None:
            return None
        ids, bodies = contents(parcel["id"], parcel["jobs"], parcel["lengths"], parcel["bodies"])
        return (parcel, ids, bodies) if raw in ids else None

    def _unpack(self, change: Change, raw: bytes) -> Touched | None:
        """Take one job out of its parcel; what stood before and after it become parcels."""
        db = change.db
        found = self._parcel_of(db, raw)
        if found is None:
            return None
        parcel, ids, bodies = found
        at = ids.index(raw)
        db.execute(sql.take_parcel, (parcel["rowid"],))
        for first, last in ((0, at), (at + 1, len(ids))):
            part = bodies[first:last]
            if part:
                db.execute(
                    sql.enqueue_parcel,
                    (ids[first], parcel["lane"], len(part), lengths_of(part), b"".join(part)),
                )
        change.tally[parcel["lane"], State.READY, 0] -= 1
        [job] = packed_jobs(self.store.lane(db, parcel["lane"]), [raw], bodies[at : at + 1])
        return job, parcel["lane"]

    def _leased(self, db: Db, raw: bytes) -> list[tuple[sqlite3.Row, int]]:
        """The lease that holds this id, with its place in there."""
        found: list[tuple[sqlite3.Row, int]] = []
        for lease in db.execute(sql.lease_of, (raw,)).fetchall():
            place = lease["ids"].find(raw)
            while place >= 0 and place % 16:
                place = lease["ids"].find(raw, place + 1)
            if place >= 0 and lease["marks"][place // 16] != SETTLED:
                found.append((lease, place // 16))
        return found

    def _packed(self, db: Db, lease: sqlite3.Row, offset: int) -> Job[Any]:
        for _, job in leased_jobs(self.store.lane(db, lease["lane"]), lease):
            if job.lease[1] == offset:
                return job
        raise LookupError(offset)

    def set_rule(self, rule: Rule) -> Rule:
        with self.store.writing() as db:
            now = self.clock.now()
            made = db.execute(
                sql.set_rule,
                {
                    "kind": rule.kind,
                    "queue": rule.queue or "",
                    "task": rule.task or "",
                    "author": rule.author,
                    "reason": rule.reason,
                    "created_at": rule.created_at or now,
                    "now": now,
                    "until": rule.until,
                },
            ).fetchone()
            rule = msgspec.structs.replace(rule, created_at=made["created_at"])
            change = Change(db, now)
            change.happened("rule", _rule_data(rule, in_force=True), None, None)
            change.finish()
        self.store.rules_changed()
        # A hand that looked at the rules just before this begins its job within this time.
        time.sleep(STARTING_SECONDS)
        return rule

    def clear_rule(
        self,
        kind: RuleKind,
        queue: str | None = None,
        task: str | None = None,
        author: str = "",
    ) -> bool:
        with self.store.writing() as db:
            now = self.clock.now()
            cleared = db.execute(
                sql.clear_rule,
                {"kind": kind, "queue": queue or "", "task": task or "", "now": now},
            ).rowcount
            if cleared:
                data = _rule_data(Rule(kind, queue, task, author), in_force=False)
                change = Change(db, now)
                change.happened("rule", data, None, None)
                change.finish()
        if cleared:
            self.store.rules_changed()
            self.bell.ring()
        return bool(cleared)

    def prune(self, before: float) -> int:
        # Page by page: whoever wants to write meanwhile, a heartbeat for one, gets its turn.
        removed, after = 0, 0
        more = True
        while more:
            with self.store.writing() as db:
                pruned, after, more = self._prune_page(db, before, after)
                if not more:
                    pruned += self._prune_rest(db, before)
            removed += pruned
            time.sleep(PRUNE_REST_SECONDS)  # threads of this process do not queue for its lock
        return removed

    def _prune_page(self, db: Db, before: float, after: int) -> tuple[int, int, bool]:
        """Forget some of each; how many rows, how far in the history, whether there is more."""
        now = self.clock.now()
        change = Change(db, now)
        self._expire(change)
        # First of all: from now on ids from before are refused, and need not be remembered.
        pruned_before = max(before, self._pruned_before(db))
        db.execute(sql.put_meta, {"name": "pruned_before", "value": repr(pruned_before)})
        below = int(max(before, 0) * 1000).to_bytes(6, "big") + bytes(10)
        parameters = {"before": before, "below": below, "now": now, "most": PRUNED_AT_ONCE}
        jobs = db.execute(sql.prune_jobs, parameters).fetchall()
        for row in jobs:
            change.tally[row["lane"], State(row["state"]), row["minute"]] -= 1
            db.execute(sql.delete, (row["id"],))
        change.finish()
        page = db.execute(sql.prune_page, {**parameters, "after": after}).fetchone()
        last, young = page["last"] or after, page["young"]
        span = {"after": after, "end": last + 1 if young is None else young, "now": now}
        removed = len(jobs) + db.execute(sql.prune, span).rowcount
        sent = [
            db.execute(statement, parameters).rowcount
            for statement in (sql.prune_sent, sql.prune_derived)
        ]
        # Not counted: the rows stay.
        bodies = db.execute(sql.prune_bodies, parameters).rowcount
        more = (young is None and last > after) or PRUNED_AT_ONCE in {len(jobs), *sent, bodies}
        return removed + sum(sent), last if young is None else young - 1, more

    def _prune_rest(self, db: Db, before: float) -> int:
        """What belongs to nothing any more."""
        parameters = {"before": before, "now": self.clock.now()}
        removed = sum(
            db.execute(statement, parameters).rowcount
            for statement in (sql.prune_notes, sql.prune_batches)
        )
        # Not counted: these are no rows that anybody put there.
        for statement in (sql.prune_tags, sql.prune_workers, sql.prune_tallies, sql.prune_unique):
            db.execute(statement, parameters)
        return removed


def _given_up(job: Job[Any], started: Collection[str] | None) -> Outcome:
    if started is None or job.id in started:
        return lapsed()
    return put_back("crashed")


def _rule_data(rule: Rule, *, in_force: bool) -> bytes:
    return msgspec.json.encode(
        {
            "kind": rule.kind,
            "queue": rule.queue,
            "task": rule.task,
            "author": rule.author,
            "reason": rule.reason,
            "set": in_force,
        }
    )
