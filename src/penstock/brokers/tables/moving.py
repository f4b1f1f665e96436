"""Moving buckets out of and into tables: `take_out` and `bring_in`, each one transaction.

Jobs that succeeded stay, as the history does. A job that runs out of a parcel gets a row of its own
where it comes to: the lease that it was claimed with stays behind.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.move import (
    Contents,
    HeldKey,
    KeptNote,
    MovedFlow,
    MovedNode,
    SentIds,
    TakenOut,
    arrived,
    arriving,
    departures,
    keys_elsewhere,
    leaving,
    split_apart,
)
from penstock.broker.quota import Quota
from penstock.broker.records import PLAIN_KINDS
from penstock.broker.shard_map import MAP_ID, Departure, ShardMap
from penstock.broker.views import Note, WorkerRow
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.flow_needs import found_keys
from penstock.brokers.tables.kept_secrets import kept_rows
from penstock.brokers.tables.rows import (
    ASKED,
    SETTLED,
    blanked,
    contents,
    find_in,
    indexed,
    job_of,
    leased_jobs,
    minute_of,
    ready_jobs,
    row_of,
    text_of,
)
from penstock.brokers.tables.rule_rows import RuleRows
from penstock.brokers.tables.worker_rows import rules_in_force
from penstock.enqueue.ids import bucket_for, bucket_of, from_bytes, is_derived, to_bytes
from penstock.errors import Refused
from penstock.flows.flow import Flow
from penstock.job import ENDED, Job, Lane, State
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule, bucket_text

_MAP, _DEPARTURE, _QUOTA = [
    next(kind.name for kind in PLAIN_KINDS if kind.type is each)
    for each in (ShardMap, Departure, Quota)
]
_schedule = msgspec.json.Decoder(Schedule).decode


class Moving(ABC):
    """Take buckets out, and bring them in; a store says how it puts lanes and workers."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    @abstractmethod
    def keep_out(self, db: Db) -> None:
        """Have no other write go on until the end of the transaction."""

    def check_leaving(self, db: Db) -> None:
        """Refuse where somebody would go on to store jobs here who knows no map."""
        del db

    @abstractmethod
    def in_sql(self, buckets: Collection[int]) -> Mapping[str, Any]:
        """These buckets as the statements take them."""

    @abstractmethod
    def put_lanes(self, db: Db, fields: Mapping[Lane, frozenset[str]]) -> None:
        """Store lanes, with the argument fields that all of their jobs have indexed."""

    @abstractmethod
    def keep_alive(self, db: Db, worker: WorkerRow) -> None:
        """Register a worker, or renew its lease."""

    def take_out(self, buckets: Collection[int], to: str) -> TakenOut:
        with self.store.writing() as db:
            self.keep_out(db)
            kept = self._map(db)
            leave = leaving(kept, buckets, to)
            if kept is None or not leave:
                return TakenOut()
            self.check_leaving(db)
            place = self.in_sql(leave)
            staged = db.execute(self.store.sql.staged_in, place).fetchone()
            if staged is not None:
                raise Refused(
                    f"write {staged['write']} has rows for these buckets that are not committed "
                    "yet: move them when it is, or discard it"
                )
            change = Change(self.store, db, self.store.clock.now())
            rules = rules_in_force(self.store, db, change.now)
            if together := self._together(db, leave, rules):
                return TakenOut(together=together)
            taken = self._taken(change, place, leave)
            parts = departures(str(uuid.uuid4()), kept, leave, to, taken)
            for part in parts:
                self._put(db, _DEPARTURE, part.id, part)
            self._put(db, _MAP, MAP_ID, kept.moved(leave, parts[0].versions, to))
            self._empty_quotas(db)
            change.finish()
        self._told(taken)
        return TakenOut(parts)

    def bring_in(self, departures: Sequence[Departure]) -> bool:
        with self.store.writing() as db:
            self.keep_out(db)
            kept = self._map(db)
            brought = arriving(kept, departures)
            if kept is None or brought is None:
                return False
            change = Change(self.store, db, self.store.clock.now())
            for worker in brought.workers:
                self.keep_alive(db, worker)
            self._place(change, brought)
            self._put(db, _MAP, MAP_ID, arrived(kept, departures))
            change.finish()
        self._told(brought)
        return True

    def _told(self, moved: Contents) -> None:
        self.store.forget_claimable()
        self.store.notify()
        if moved.schedules:
            self.store.rules_changed(stop=False)

    # Records

    def _map(self, db: Db) -> ShardMap | None:
        row = db.execute(self.store.sql.locked_record, (_MAP, MAP_ID)).fetchone()
        if row is None or not row["declared"]:
            return None
        return msgspec.json.decode(row["declared"], type=ShardMap)

    def _empty_quotas(self, db: Db) -> None:
        """Running jobs left: nothing takes their place here before all shards are counted anew."""
        rows = db.execute(self.store.sql.records, (_QUOTA,)).fetchall()
        for row in rows:
            quota = msgspec.json.decode(row["declared"], type=Quota)
            if not quota.cleared:
                self._put(db, _QUOTA, quota.id, quota.emptied)
                RuleRows(self.store).put_within(db, quota.emptied.part, told=False)

    def _put(self, db: Db, kind: str, id: str, record: Any) -> None:
        db.execute(self.store.sql.new_record, (kind, id))
        declared = msgspec.json.encode(record).decode()
        db.execute(self.store.sql.put_record, (declared, kind, id))

    def _together(self, db: Db, leave: Collection[int], rules: Sequence[Rule]) -> frozenset[int]:
        sql = self.store.sql
        keys = [(row["key"], from_bytes(row["job"])) for row in db.execute(sql.unique_keys)]
        keyed: Iterable[Job[Any]] = ()
        if any(rule.policy is not None or rule.per_key for rule in rules):
            rows = db.execute(sql.rows_with_keys).fetchall()
            keyed = [job_of(self.store.lane(db, row["lane"]), row) for row in rows]
        return split_apart(keys_elsewhere(keyed, keys, rules), leave)

    # Out

    def _taken(self, change: Change, place: Mapping[str, Any], leave: Collection[int]) -> Contents:
        db, sql = change.db, self.store.sql
        keys = [
            HeldKey(row["key"], from_bytes(row["job"]), row["until"], row["expires_at"])
            for row in db.execute(sql.unique_keys).fetchall()
        ]
        leased, asked = self._out_of_leases(change, leave)
        packed = self._out_of_parcels(change, place)
        rows = db.execute(sql.rows_to_move, place).fetchall()
        asked += [from_bytes(row["id"]) for row in rows if row["cancelled"]]
        for row in rows:
            change.tally[row["lane"], State(row["state"]), row["minute"]] -= 1
        alone = [job_of(self.store.lane(db, row["lane"]), row) for row in rows]
        jobs = [*leased, *packed, *alone]
        moved = Contents(
            jobs=[msgspec.structs.replace(job, lease=None) for job in jobs],
            asked=asked,
            workers=self._workers(db, {job.worker for job in jobs if job.state is State.RUNNING}),
            notes=self._notes(db, place, {job.id for job in jobs}),
            sent=[
                SentIds(from_bytes(row["id"]), row["jobs"], row["lane"], row["at"])
                for row in db.execute(sql.sent_to_move, place).fetchall()
            ],
            keys=[held for held in keys if bucket_of(held.job) in leave],
            flows=self._flows(db, place),
            schedules=self._schedules(db, leave),
            batches=self._batches(db, leave),
        )
        ids = [{"id": to_bytes(job.id)} for job in jobs]
        for statement in (sql.forget_tags, sql.forget_note, sql.forget_kept_secret):
            if ids:
                db.executemany(statement, ids)
        for statement in (
            *(sql.forget_parcels, sql.forget_rows, sql.forget_sent_ids, sql.forget_unique_keys),
            # Needs and members first: they are found by their nodes.
            *(sql.forget_flow_needs, sql.forget_flow_members, sql.forget_flow_nodes),
            *(sql.forget_flow_finds, sql.forget_flows),
        ):
            db.execute(statement, place)
        return moved

    def _out_of_leases(
        self, change: Change, leave: Collection[int]
    ) -> tuple[list[Job[Any]], list[str]]:
        jobs: list[Job[Any]] = []
        asked: list[str] = []
        for row in change.db.execute(self.store.sql.leases_to_move).fetchall():
            found = [
                (mark, job)
                for mark, job in leased_jobs(self.store.lane(change.db, row["lane"]), row)
                if bucket_of(job.id) in leave
            ]
            if not found:
                continue
            marks = bytearray(row["marks"])
            for mark, job in found:
                marks[job.lease[1]] = SETTLED
                asked += [job.id] if mark == ASKED else []
                jobs.append(job)
            change.tally[row["lane"], State.RUNNING, 0] -= len(found)
            if marks.count(SETTLED) == len(marks):
                change.ended.append((row["id"],))
                continue
            change.marked.append((bytes(marks), row["id"]))
            secret = [job.lease[1] for _, job in found if b'"secret"' in job.body]
            if secret:
                bodies = blanked(row, secret)
                change.db.execute(self.store.sql.blank_lease, (bodies, row["id"]))
        return jobs, asked

    def _out_of_parcels(self, change: Change, place: Mapping[str, Any]) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        for row in change.db.execute(self.store.sql.parcels_to_move, place).fetchall():
            lane = self.store.lane(change.db, row["lane"])
            ids, bodies = contents(row["id"], row["jobs"], row["lengths"], row["bodies"])
            change.tally[row["lane"], State.READY, 0] -= len(ids)
            jobs += ready_jobs(lane, row, ids, bodies)
        return jobs

    def _workers(self, db: Db, ids: Iterable[str | None]) -> list[WorkerRow]:
        found: list[WorkerRow] = []
        for worker in sorted(filter(None, ids)):
            row = db.execute(self.store.sql.declared_worker, {"id": worker}).fetchone()
            if row is not None:
                found.append(msgspec.json.decode(row["declared"], type=WorkerRow))
        return found

    def _notes(self, db: Db, place: Mapping[str, Any], ids: Collection[str]) -> list[KeptNote]:
        return [
            KeptNote(job, Note(row["kind"], row["name"], row["value"], row["at"]))
            for row in db.execute(self.store.sql.notes_to_move, place).fetchall()
            if (job := from_bytes(row["job"])) in ids
        ]

    def _flows(self, db: Db, place: Mapping[str, Any]) -> list[MovedFlow]:
        sql = self.store.sql
        flows = db.execute(sql.flows_to_move, place).fetchall()
        nodes: defaultdict[bytes, list[Row]] = defaultdict(list)
        for row in db.execute(sql.nodes_to_move, place).fetchall():
            nodes[row["flow"]].append(row)
        needs: defaultdict[bytes, list[tuple[str, bool]]] = defaultdict(list)
        for row in db.execute(sql.needs_to_move, place).fetchall():
            needs[row["node"]].append((from_bytes(row["need"]), bool(row["met"])))
        members: defaultdict[bytes, list[tuple[str, int]]] = defaultdict(list)
        for row in db.execute(sql.members_to_move, place).fetchall():
            count = _tail(row["last"]) - _tail(row["first"]) + 1
            members[row["node"]].append((from_bytes(row["first"]), count))
        return [
            MovedFlow(
                id=from_bytes(row["id"]),
                name=row["name"],
                find=find_in(row["find"]),
                state=row["state"],
                state_ttl=row["state_ttl"],
                state_until=row["state_until"],
                created_at=row["created_at"],
                ended_at=row["ended_at"],
                jobs_left=row["jobs_left"],
                nodes=tuple(
                    MovedNode(
                        id=from_bytes(node["id"]),
                        task=node["task"],
                        members=tuple(members[node["id"]]),
                        needs=tuple(needs[node["id"]]),
                        on_failure=node["on_failure"],
                        jobs_left=node["jobs_left"],
                        bad=node["bad"],
                        freed=bool(node["freed"]),
                    )
                    for node in nodes[row["id"]]
                ),
            )
            for row in flows
        ]

    def _schedules(self, db: Db, leave: Collection[int]) -> list[Schedule]:
        rows = db.execute(self.store.sql.schedules).fetchall()
        schedules = [_schedule(row["declared"]) for row in rows]
        found = [each for each in schedules if bucket_for(bucket_text(each)) in leave]
        for schedule in found:
            db.execute(self.store.sql.clear_schedule, (schedule.name,))
        return found

    def _batches(self, db: Db, leave: Collection[int]) -> list[tuple[str, int, float]]:
        rows = db.execute(self.store.sql.batches).fetchall()
        found = [(row["id"], row["rows"], row["at"]) for row in rows]
        found = [batch for batch in found if bucket_for(batch[0]) in leave]
        for batch, _, _ in found:
            db.execute(self.store.sql.forget_batch, {"id": batch})
        return found

    # In

    def _place(self, change: Change, brought: Contents) -> None:
        db, sql = change.db, self.store.sql
        self._place_jobs(change, brought)
        for flow in brought.flows:
            self._place_flow(db, flow)
        for schedule in brought.schedules:
            declared = msgspec.json.encode(schedule).decode()
            db.execute(sql.put_schedule, {"name": schedule.name, "declared": declared})
        for statement, values in (
            (
                sql.move_sent,
                [
                    {"id": to_bytes(ids.first), "jobs": ids.jobs, "lane": ids.lane, "at": _at(ids)}
                    for ids in brought.sent
                ],
            ),
            (
                sql.move_unique,
                [
                    {
                        "key": held.key,
                        "job": to_bytes(held.job),
                        "until": held.until,
                        "expires_at": held.ends_at,
                    }
                    for held in brought.keys
                ],
            ),
            (
                sql.note,
                [
                    {
                        "job": to_bytes(kept.job),
                        "kind": kept.note.kind,
                        "name": kept.note.name,
                        "at": kept.note.at,
                        "value": kept.note.value,
                    }
                    for kept in brought.notes
                ],
            ),
            (
                sql.move_batch,
                [dict(zip(("id", "rows", "at"), b, strict=True)) for b in brought.batches],
            ),
        ):
            if values:
                db.executemany(statement, values)

    def _place_jobs(self, change: Change, brought: Contents) -> None:
        fields: dict[Lane, frozenset[str]] = {}
        for job in brought.jobs:
            lane = _lane_of(job)
            fields[lane] = fields.get(lane, frozenset(job.search)) & frozenset(job.search)
        self.put_lanes(change.db, fields)
        asked = set(brought.asked)
        rows: list[dict[str, Any]] = []
        tags: list[dict[str, Any]] = []
        for job in brought.jobs:
            raw, lane = to_bytes(job.id), _lane_of(job).hash
            if _packable(job):
                change.unclaimed[lane].append((raw, job))
                change.tally[lane, State.READY, 0] += 1
                continue
            run_at = job.enqueued_at if job.run_at is None else job.run_at
            minute = minute_of(run_at, change.now) if job.state is State.READY else 0
            own = {"claimed_at": job.claimed_at, "worker": job.worker}
            running = job.state is State.RUNNING
            own = own if running else dict.fromkeys(own)
            cancelled = running and job.id in asked
            rows.append(row_of(job, lane, run_at=run_at, minute=minute, cancelled=cancelled, **own))
            change.tally[lane, job.state, minute] += 1
            names = [*job.tags.items(), *((f"arg.{name}", v) for name, v in job.search.items())]
            tags += [{"name": name, "value": indexed(v), "job": raw} for name, v in names]
        kept = kept_rows([row for row in rows if row["state"] in ENDED])
        sql = self.store.sql
        for statement, values in (
            (sql.move_job, rows),
            (sql.move_tag, tags),
            (sql.keep_secrets, kept),
        ):
            if values:
                change.db.executemany(statement, values)

    def _place_flow(self, db: Db, flow: MovedFlow) -> None:
        sql, raw = self.store.sql, to_bytes(flow.id)
        row = {
            "id": raw,
            "name": flow.name,
            "find": text_of(flow.find),
            "state": flow.state,
            "state_ttl": flow.state_ttl,
            "state_until": flow.state_until,
            "created_at": flow.created_at,
            "ended_at": flow.ended_at,
            "jobs_left": flow.jobs_left,
        }
        db.execute(sql.move_flow, row)
        found = found_keys(Flow(id=flow.id, nodes=(), name=flow.name, find=flow.find))
        for statement, values in (
            (sql.move_find, [{"property": key, "flow": raw} for key in found]),
            (sql.move_node, [_node(raw, *each) for each in enumerate(flow.nodes)]),
            (
                sql.move_need,
                [
                    {"node": to_bytes(node.id), "place": at, "need": to_bytes(need), "met": met}
                    for node in flow.nodes
                    for at, (need, met) in enumerate(node.needs)
                ],
            ),
            (
                sql.move_member,
                [
                    {"node": to_bytes(node.id), "place": at, "first": begin, "last": end}
                    for node in flow.nodes
                    for at, (first, count) in enumerate(node.members)
                    for begin, end in [_span(to_bytes(first), count)]
                ],
            ),
        ):
            if values:
                db.executemany(statement, values)


def _packable(job: Job[Any]) -> bool:
    """Whether it may travel in a parcel again: nothing about it needs a row."""
    counters = job.failures or job.lapses or job.repeats
    plain = job.plain if not job.attempt else msgspec.structs.replace(job, attempt=0).plain
    said = job.reason or job.error
    return job.state is State.READY and plain and not (counters or said or is_derived(job.id))


def _lane_of(job: Job[Any]) -> Lane:
    lane = job.lane
    return msgspec.structs.replace(lane, runs_on=tuple(sorted(lane.runs_on)))


def _node(flow: bytes, place: int, node: MovedNode) -> dict[str, Any]:
    return {
        "id": to_bytes(node.id),
        "flow": flow,
        "place": place,
        "task": node.task,
        "jobs": sum(count for _, count in node.members),
        "on_failure": node.on_failure,
        "needs_left": sum(not met for _, met in node.needs),
        "jobs_left": node.jobs_left,
        "bad": node.bad,
        "freed": node.freed,
    }


def _at(ids: SentIds) -> float | None:
    """When ids were sent that hold no time."""
    return ids.at if is_derived(ids.first) else None


def _tail(raw: bytes) -> int:
    return int.from_bytes(raw[14:], "big")


def _span(first: bytes, count: int) -> tuple[bytes, bytes]:
    return first, first[:14] + (_tail(first) + count - 1).to_bytes(2, "big")
