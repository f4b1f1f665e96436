"""Whole flows: cancel, retry, delete and find them, each as one change.

Jobs are reached by the ranges of ids that their flow has, and not one by one: a flow may have a
hundred thousand. Locks are taken as a settlement takes them: first what moves (parcels, leases,
rows of jobs that are ready or run), then the flow's own row, then what stands still in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.checks import check_action
from penstock.broker.values import Action
from penstock.broker.views import author_and_reason
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.flow_needs import ids_between, lock_flows, node_row
from penstock.brokers.tables.job_actions import JobActions, Touched
from penstock.brokers.tables.rows import (
    ASKED,
    SETTLED,
    blanked,
    find_in,
    job_of,
    leased_jobs,
    run_of,
    succeeded_job,
)
from penstock.enqueue.ids import from_bytes, to_bytes
from penstock.flows.flow import FlowPage, FlowRow, event_of, in_order
from penstock.flows.state import found_by, key_of, state_at
from penstock.job import ENDED, State

Span = tuple[bytes, bytes]  # the first and the last id of jobs that follow on, within one run
ActOnFlow = Callable[[Change, bytes], dict[bytes, Touched]]
MOST_FOUND = 1000
_PAGE = 64
_ABOVE_ALL = b"\xff" * 16
_MOVING = (State.READY, State.RUNNING)
_STILL = (State.WAITING, State.FAILED, State.CANCELLED)


class WholeFlows:
    """Act on all jobs of a flow; flow and flows. Acts on single jobs are those of `jobs`."""

    def __init__(self, store: TableStore, jobs: JobActions) -> None:
        self.store = store
        self.clock = store.clock
        self._jobs = jobs
        self._actions: dict[Action, ActOnFlow] = {
            "cancel": self._cancel_flow,
            "retry": self._retry_flow,
            "delete": self._delete_flow,
        }

    def act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> list[str]:
        check_action(action)
        if flow is None:
            data = msgspec.json.encode(author_and_reason(author, reason, part_of))
            return self._jobs.act(action, ids, data, secrets or {})
        return self._act_on_flow(action, flow, author_and_reason(author, reason))

    def _act_on_flow(self, action: Action, flow: str, asked: Mapping[str, str]) -> list[str]:
        """Do it to every job of a flow that it applies to, and write down who asked."""
        raw = to_bytes(flow)
        data = msgspec.json.encode({**asked, "part_of": flow})
        with self.store.writing() as db:
            change = Change(self.store, db, self.clock.now())
            row = db.execute(self.store.sql.flow_end, {"id": raw}).fetchone()
            if row is None:
                return []
            touched = self._actions[action](change, raw)
            flow_data = event_of(action, row["jobs"], row["name"], find_in(row["find"]), **asked)
            if touched and action == "cancel":
                change.flow_event(raw, flow_data)  # before the flow ends because of it
            for job, lane in touched.values():
                change.add_event(action, data, job, lane)
                if job.state is State.CANCELLED and action == "cancel":
                    change.unreported.append(job)
            if action == "delete" or (touched and action == "retry"):
                change.flow_event(raw, flow_data)
            change.finish()
        if touched:
            self.store.forget_claimable()
            self.store.notify()
        change.report_ends()
        return [from_bytes(job) for job in touched]

    # Cancel

    def _cancel_flow(self, change: Change, flow: bytes) -> dict[bytes, Touched]:
        spans = self._spans(change.db, flow)
        touched = self._cancel_what_moves(change, spans)
        left = self._lock(change, flow)
        now_there = self._spans(change.db, flow)
        if left > len(touched) or now_there != spans:
            rows = self._rows(change.db, now_there, (*_MOVING, State.WAITING))
            new = {raw: row for raw, row in rows.items() if raw not in touched}
            touched |= self._jobs.cancel_rows(change, new)
        if left > len(touched):
            # A parcel that a claim cut meanwhile is another row by now, and may be cut again.
            change.write_places()
            self._jobs.keep_claims_out(change)
            touched |= self._cancel_what_moves(change, now_there, touched)
        return touched

    def _cancel_what_moves(
        self, change: Change, spans: Sequence[Span], done: Mapping[bytes, Touched] | None = None
    ) -> dict[bytes, Touched]:
        done = done or {}
        touched = self._jobs.cancel_unpacked(change, self._unpack_spans(change, spans))
        rows = self._rows(change.db, spans, _MOVING)
        new = {raw: row for raw, row in rows.items() if raw not in done}
        touched |= self._jobs.cancel_rows(change, new)
        for lease, held in self._leases(change.db, spans):
            marks = bytearray(lease["marks"])
            for raw, (offset, (job, lane)) in held.items():
                if raw not in done:
                    marks[offset] = ASKED
                    touched[raw] = job, lane
            change.db.execute(self.store.sql.mark_lease, (bytes(marks), lease["id"]))
        return touched

    # Retry

    def _retry_flow(self, change: Change, flow: bytes) -> dict[bytes, Touched]:
        self._lock(change, flow)
        spans = self._spans(change.db, flow)
        rows = self._rows(change.db, spans, (State.FAILED, State.CANCELLED))
        return self._jobs.retry_rows(change, rows, {})

    # Delete

    def _delete_flow(self, change: Change, flow: bytes) -> dict[bytes, Touched]:
        db, sql = change.db, self.store.sql
        touched = self._delete_what_moves(change, self._spans(db, flow))
        left = self._lock(change, flow)
        spans = self._spans(db, flow)
        rows = self._rows(db, spans, (*_MOVING, *_STILL))
        self._delete_rows(change, {raw: rows[raw] for raw in rows if raw not in touched}, touched)
        if left > sum(job.state not in ENDED for job, _ in touched.values()):
            change.write_places()
            self._jobs.keep_claims_out(change)
            touched |= self._delete_what_moves(change, spans)
        sets = [{"first": first, "last": last} for first, last in spans]
        for found in db.every(sql.succeeded_between, sets):
            for row in found:
                job = succeeded_job(self.store.lane(db, row["lane"]), row)
                touched[row["job"]] = job, row["lane"]
        if sets:
            db.executemany(sql.forget_bodies, sets)
            db.executemany(sql.forget_notes, sets)
        # From here on nobody can find it, and whoever still writes of its jobs is stale.
        change.write_places()
        for statement in (
            *(sql.forget_members, sql.forget_needs, sql.forget_nodes),
            *(sql.forget_found, sql.forget_flow),
        ):
            db.execute(statement, (flow,))
        return touched

    def _delete_what_moves(self, change: Change, spans: Sequence[Span]) -> dict[bytes, Touched]:
        touched = self._unpack_spans(change, spans)
        self._delete_rows(change, self._rows(change.db, spans, _MOVING), touched)
        for lease, held in self._leases(change.db, spans):
            marks = bytearray(lease["marks"])
            for raw, (offset, (job, lane)) in held.items():
                marks[offset] = SETTLED
                change.tally[lane, State.RUNNING, 0] -= 1
                touched[raw] = job, lane
            if marks.count(SETTLED) == len(marks):
                change.ended.append((lease["id"],))
            else:
                change.marked.append((bytes(marks), lease["id"]))
                left = [offset for offset, _ in held.values()]
                change.db.execute(self.store.sql.blank_lease, (blanked(lease, left), lease["id"]))
        return touched

    def _delete_rows(
        self, change: Change, rows: Mapping[bytes, Row], touched: dict[bytes, Touched]
    ) -> None:
        for raw, row in rows.items():
            job = job_of(self.store.lane(change.db, row["lane"]), row)
            change.tally[row["lane"], job.state, row["minute"]] -= 1
            change.deleted.append((raw,))
            touched[raw] = job, row["lane"]
        change.write_places()

    # The jobs of a flow

    def _lock(self, change: Change, flow: bytes) -> int:
        """Nobody else counts in this flow from here on; how many of its jobs have not ended."""
        lock_flows(change.db, change.sql, [(flow, flow)])
        nodes = change.db.execute(change.sql.nodes, (flow,)).fetchall()
        return sum(node["jobs_left"] for node in nodes)

    def _spans(self, db: Db, flow: bytes) -> list[Span]:
        """The ids of all its jobs, as far as they follow on within a run."""
        spans: list[Span] = []
        for row in db.execute(self.store.sql.members_of, (flow,)).fetchall():
            first, last = row["first"], row["last"]
            if spans and _follows(spans[-1][1], first):
                spans[-1] = spans[-1][0], last
            else:
                spans.append((first, last))
        return spans

    def _rows(self, db: Db, spans: Sequence[Span], states: Iterable[State]) -> dict[bytes, Row]:
        wanted = msgspec.json.encode(list(states)).decode()
        sets = [{"first": first, "last": last, "states": wanted} for first, last in spans]
        found = db.every(self.store.sql.rows_between, sets)
        return {row["id"]: row for rows in found for row in rows}

    def _unpack_spans(self, change: Change, spans: Sequence[Span]) -> dict[bytes, Touched]:
        """Take these jobs out of their parcels, each of which is read once."""
        sets = [{"run": run_of(first), "last": last} for first, last in spans]
        found: dict[bytes, Row] = {}
        leaving: dict[bytes, list[bytes]] = defaultdict(list)
        parcels = change.db.every(self.store.sql.parcels_between, sets)
        for (first, last), rows in zip(spans, parcels, strict=True):
            for parcel in rows:
                begin = parcel["id"]
                tail = int.from_bytes(begin[14:], "big") + parcel["jobs"] - 1
                end = begin[:14] + tail.to_bytes(2, "big")
                if end >= first:
                    found[begin] = parcel
                    leaving[begin] += ids_between(max(first, begin), min(last, end))
        return self._jobs.take_out(change, found, leaving)

    def _leases(
        self, db: Db, spans: Sequence[Span]
    ) -> Iterator[tuple[Row, dict[bytes, tuple[int, Touched]]]]:
        """Leases that hold jobs of these, each with the places of those in it."""
        runs: dict[bytes, list[Span]] = defaultdict(list)
        for first, last in spans:
            runs[first[:14]].append((first, last))
        leases: dict[int, Row] = {}
        for first in sorted(runs):
            rows = db.execute(self.store.sql.locked_leases, (first + bytes(2),)).fetchall()
            leases.update((row["id"], row) for row in rows)
        for number in sorted(leases):
            lease = leases[number]
            held: dict[bytes, tuple[int, Touched]] = {}
            for _, job in leased_jobs(self.store.lane(db, lease["lane"]), lease):
                _, offset, raw = job.lease
                if any(first <= raw <= last for first, last in runs.get(raw[:14], ())):
                    held[raw] = offset, (job, lease["lane"])
            if held:
                yield lease, held

    # Look

    def flow(self, flow_id: str) -> FlowRow | None:
        with self.store.reading() as db:
            return self._flow(db, to_bytes(flow_id))

    def _flow(self, db: Db, raw: bytes) -> FlowRow | None:
        sql = self.store.sql
        row = db.execute(sql.flow, (raw,)).fetchone()
        if row is None:
            return None
        needs: dict[bytes, list[str]] = defaultdict(list)
        for edge in db.execute(sql.needs, (raw,)):
            needs[edge["node"]].append(from_bytes(edge["need"]))
        nodes = db.execute(sql.nodes, (raw,)).fetchall()
        return FlowRow(
            id=from_bytes(raw),
            name=row["name"],
            find=find_in(row["find"]),
            state=state_at(row["state"], row["state_until"], self.store.clock.now()),
            state_ttl=row["state_ttl"],
            state_until=row["state_until"],
            created_at=row["created_at"],
            ended_at=row["ended_at"],
            # Those that were spawned are in the table after those that need them.
            nodes=tuple(in_order([node_row(node, needs[node["id"]]) for node in nodes])),
        )

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        limit = max(1, min(limit, MOST_FOUND))
        wanted = dict(find or {})
        found: list[FlowRow] = []
        with self.store.reading() as db:
            below = _ABOVE_ALL if after is None else to_bytes(after)
            for raw in self._newest_flows(db, name, wanted, below):
                row = self._flow(db, raw)
                if row is None or name not in {None, row.name} or not found_by(row.find, wanted):
                    continue
                if len(found) == limit:
                    return FlowPage(found, found[-1].id)
                found.append(row)
        return FlowPage(found)

    def _newest_flows(
        self, db: Db, name: str | None, find: Mapping[str, str], below: bytes
    ) -> Iterator[bytes]:
        sql, words = self.store.sql, dict[str, Any](name=name)
        statement = sql.flows if name is None else sql.flows_named
        if find and name is not None:
            keys = [key_of(name, *pair) for pair in find.items()]
            if len(keys) > 1:  # the rarest leads; the others are compared
                counts = db.each(sql.count_found, [{"property": key} for key in keys])
                flows = [row["flows"] if row else 0 for row in counts]
                keys = [min(zip(flows, keys, strict=True))[1]]
            statement, words = sql.flows_found, {"property": keys[0]}
        while True:
            page = db.execute(statement, {**words, "below": below, "most": _PAGE}).fetchall()
            yield from (row["id"] for row in page)
            if len(page) < _PAGE:
                return
            below = page[-1]["id"]


def _follows(last: bytes, first: bytes) -> bool:
    number = int.from_bytes(last, "big") + 1
    return number == int.from_bytes(first, "big") and run_of(first) == run_of(last)
