"""Cancel, retry and delete jobs one by one, with a history row for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.settlement import cancelled
from penstock.broker.values import Action
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.flow_needs import (
    Ends,
    Place,
    cancelled_by_needs,
    lock_flows,
    nodes_at,
    place_of,
    revived_job,
    take_back_ends,
    unretryable_nodes,
)
from penstock.brokers.tables.locate_job import leased_job, leases_of
from penstock.brokers.tables.rows import (
    ASKED,
    PackedRow,
    contents,
    job_of,
    packed_row,
    ready_jobs,
    row_of,
    run_of,
    succeeded_job,
)
from penstock.brokers.tables.worker_rows import cancel_row
from penstock.enqueue.ids import to_bytes
from penstock.enqueue.secrets import with_secrets
from penstock.flows.flow import WAIT_TASK
from penstock.job import ENDED, Job, State

_BAD = frozenset({State.FAILED, State.CANCELLED})
Touched = tuple[Job[Any], int]  # a job as it stands now, and its lane
ActOnJobs = Callable[[Change, Sequence[bytes]], dict[bytes, Touched]]


class JobActions:
    """Cancel, retry and delete jobs by their ids."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.clock = store.clock
        self._actions: dict[Action, ActOnJobs] = {
            "cancel": self.cancel,
            "delete": self._delete,
        }

    def act(
        self, action: Action, ids: Sequence[str], data: bytes, secrets: Mapping[str, Any]
    ) -> list[str]:
        """Do it to every job it applies to, and write down who asked, in one transaction."""
        wanted = {job_id: to_bytes(job_id) for job_id in ids}
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            if action == "retry":
                rows = self.locked_rows(db, list(wanted.values()))
                touched = self.retry_rows(change, rows, secrets)
            else:
                touched = self._actions[action](change, list(wanted.values()))
            done = [job_id for job_id, raw in wanted.items() if raw in touched]
            for job, lane in touched.values():
                change.add_event(action, data, job, lane)
                if job.state is State.CANCELLED and action == "cancel":
                    change.unreported.append(job)
            change.finish()
        if done:
            self.store.forget_claimable()
            self.store.notify()
        change.report_ends()
        return done

    def cancel(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        touched = self._cancel_moving(change, wanted)
        return touched | self._cancel_still(change, [raw for raw in wanted if raw not in touched])

    def _cancel_moving(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        # A job goes from its parcel to a lease to a row, never back: looked for in this order, and
        # once more among the rows, one that moves on meanwhile is not missed.
        touched = self.cancel_unpacked(change, self._unpack(change, wanted))
        left = self._moving(change.db, [raw for raw in wanted if raw not in touched])
        rows = self._in_order(change.db, left)
        touched |= self.cancel_rows(change, rows)
        left = [raw for raw in left if raw not in rows]
        for raw in sorted(left):
            for lease, offset in leases_of(change.db, self.store.sql.locked_leases, raw):
                marks = bytearray(lease["marks"])
                marks[offset] = ASKED
                change.db.execute(self.store.sql.mark_lease, (bytes(marks), lease["id"]))
                touched[raw] = leased_job(self.store, change.db, lease, offset), lease["lane"]
        left = self._moving(change.db, [raw for raw in left if raw not in touched])
        return touched | self.cancel_rows(change, self._in_order(change.db, left))

    def _cancel_still(self, change: Change, wanted: Sequence[bytes]) -> dict[bytes, Touched]:
        """Cancel jobs that wait in a flow: their rows are locked last."""
        waiting = self.members_among(change.db, wanted)
        return self.cancel_rows(change, self.locked_rows(change.db, list(waiting)))

    def _moving(self, db: Db, wanted: Sequence[bytes]) -> list[bytes]:
        still = self.members_among(db, wanted)
        return [raw for raw in wanted if raw not in still]

    def members_among(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Place]:  # noqa: ARG002
        """Jobs that a settlement in their flow may change at this moment; none with one writer."""
        return {}

    def keep_claims_out(self, change: Change) -> None:
        """Block claims until the end of the transaction; nothing to do with one writer."""

    def cancel_unpacked(
        self, change: Change, unpacked: Mapping[bytes, Touched]
    ) -> dict[bytes, Touched]:
        """Jobs that were taken out of their parcels get rows of their own, cancelled."""
        touched: dict[bytes, Touched] = {}
        for raw, (job, lane) in unpacked.items():
            ended = cancelled(job, "cancelled", change.now)
            change.rows.append(row_of(ended, lane, run_at=job.enqueued_at))
            change.tally[lane, State.CANCELLED, 0] += 1
            change.member_ended(job.body, good=False)
            touched[raw] = ended, lane
        return touched

    def cancel_rows(self, change: Change, rows: Mapping[bytes, Row]) -> dict[bytes, Touched]:
        touched: dict[bytes, Touched] = {}
        running: list[tuple[bytes]] = []
        for raw, row in rows.items():
            job = job_of(self.store.lane(change.db, row["lane"]), row)
            if job.state is State.RUNNING:
                running.append((raw,))
                touched[raw] = job, row["lane"]
            elif job.state not in ENDED:
                touched[raw] = cancel_row(change, row, "cancelled"), row["lane"]
        if running:
            change.db.executemany(self.store.sql.ask_cancel, running)
        return touched

    def retry_rows(
        self, change: Change, rows: Mapping[bytes, Row], secrets: Mapping[str, Any]
    ) -> dict[bytes, Touched]:
        ended = [row for row in rows.values() if row["state"] in _BAD]
        bodies = {row["id"]: with_secrets(row["body"], secrets, change.now) for row in ended}
        places = {row["id"]: place for row in ended if (place := place_of(row["body"]))}
        nodes = nodes_at(change, set(places.values())) if places else {}
        # A job that needs a deleted one is not retried: it would wait for ever.
        undecided = {row["flow"] for row in nodes.values() if cancelled_by_needs(row)}
        stuck = {place[1] for raw, place in places.items() if bodies[raw] is None}
        left = {node for flow in undecided for node in unretryable_nodes(change, flow, stuck)}
        again = {
            raw: row
            for raw, row in rows.items()
            if (raw not in places or places[raw][1] not in left)
            and bodies.get(raw, b"") is not None
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
            sets = [
                {
                    "id": raw,
                    "state": touched[raw][0].state,
                    "now": change.now,
                    "body": None if bodies.get(raw) == rows[raw]["body"] else bodies.get(raw),
                }
                for raw in some
            ]
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
        return change.take_unique(job, raw)

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
        rows = self.locked_rows(db, left)
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
                change.forget_lasting(raw)
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

    def locked_rows(self, db: Db, wanted: Sequence[bytes]) -> dict[bytes, Row]:
        """The jobs' own rows, in the order asked for."""
        # Locked in the order of ids: two callers with ids in common cannot deadlock. But
        # those in flows after the locks of these, which come after the rows of jobs that run.
        later = self.members_among(db, wanted)
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
        """Take jobs out of their parcels; the jobs between them become parcels of their own."""
        db, sql = change.db, self.store.sql
        in_order = sorted(wanted)
        parcels = db.each(sql.locked_parcel, [(run_of(raw), raw) for raw in in_order])
        found: dict[bytes, Row] = {}
        leaving: dict[bytes, list[bytes]] = defaultdict(list)
        for raw, parcel in zip(in_order, parcels, strict=True):
            if parcel is not None:
                found[parcel["id"]] = parcel
                leaving[parcel["id"]].append(raw)
        return self.take_out(change, found, leaving)

    def take_out(
        self, change: Change, found: Mapping[bytes, Row], leaving: Mapping[bytes, Sequence[bytes]]
    ) -> dict[bytes, Touched]:
        """Take the leaving jobs out of these parcels, and store the rest as new parcels."""
        db, sql = change.db, self.store.sql
        unpacked: dict[bytes, Touched] = {}
        rest: list[PackedRow] = []
        for first, parcel in found.items():
            lane, counters = parcel["lane"], (parcel["attempt"], parcel["spared"])
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
                    rest.append(packed_row(ids[start], lane, part, *counters))
            change.tally[lane, State.READY, 0] -= len(places)
            jobs = ready_jobs(
                self.store.lane(db, lane),
                parcel,
                [ids[at] for at in places],
                [bodies[at] for at in places],
            )
            unpacked.update((ids[at], (job, lane)) for at, job in zip(places, jobs, strict=True))
        if rest:
            db.executemany(sql.enqueue_parcel, rest)
        return unpacked
