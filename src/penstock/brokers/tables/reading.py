"""Look: where jobs are, what happened to them, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Generic

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.gauge import queue_in
from penstock.broker.newest_first import below, made
from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.quota import LimitUse
from penstock.broker.slice import check_last
from penstock.broker.views import PLACES, Count, Event, Note, Page, Why, WorkerRow
from penstock.brokers.positions import FARTHEST_POSITION, number_of, position_text
from penstock.brokers.tables.db import Db, Row
from penstock.brokers.tables.finding import NewestFirst
from penstock.brokers.tables.flow_needs import ids_between, names_between, node_row, place_of
from penstock.brokers.tables.key_order import behind
from penstock.brokers.tables.limit_usage import LimitStanding, Usage, limited
from penstock.brokers.tables.locate_job import get_job, parcel_of
from penstock.brokers.tables.rows import SETTLED, names_in, state_in
from penstock.brokers.tables.settling import StoreT
from penstock.brokers.tables.worker_rows import rules_in_force
from penstock.enqueue.ids import from_bytes, to_bytes
from penstock.flows.flow import JobOutput, NodeRow
from penstock.job import Job, State
from penstock.operate.why import FullLimit, explain, full_limit
from penstock.rules.rule import RuleKind, covered_by

MOST_EXAMINED = 100_000
MOST_FOUND = 1000

_PLACE = {place: number for number, place in enumerate(PLACES)}
_READY, _SCHEDULED, _PAUSED, _LIMITED = map(
    _PLACE.__getitem__, ("ready", "scheduled", "paused", "limited")
)


class Looks(Generic[StoreT]):
    """Get, find, count, history, why, outputs, notes, workers."""

    def __init__(self, store: StoreT) -> None:
        self.store = store
        self.clock = store.clock

    def get(self, job_id: str) -> Job[Any] | None:
        with self.store.reading() as db:
            return get_job(self.store, db, to_bytes(job_id))

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        with self.store.reading() as db:
            found = {id: get_job(self.store, db, to_bytes(id)) for id in ids}
        return {id: job for id, job in found.items() if job is not None}

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        with self.store.reading() as db:
            rows = db.execute(self.store.sql.notes, {"job": to_bytes(job_id), "kind": kind})
            return [Note(row["kind"], row["name"], row["value"], row["at"]) for row in rows]

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        limit = max(1, min(limit, MOST_FOUND))
        older = below(after)
        found: list[Job[Any]] = []
        examined = 0
        last: Job[Any] | None = None
        with self.store.reading() as db:
            for job in NewestFirst(self.store, db).jobs(filter, older, limit):
                if last is not None and (len(found) == limit or examined == MOST_EXAMINED):
                    return Page(found, str(made(last)), examined)
                examined += 1
                last = job
                if filter.matches(job):
                    found.append(job)
                elif filter.since is not None and job.enqueued_at < filter.since:
                    break  # below the first that is too old there are only older ones
        return Page(found, None, examined)

    def count(self) -> list[Count]:
        now = self.clock.now()
        # Plain lists, for there may be ten thousand queues and a dashboard that looks every second.
        places: defaultdict[tuple[str, str, str], list[int]]
        places = defaultdict(lambda: [0] * len(PLACES))
        with self.store.reading() as db:
            rules = rules_in_force(self.store, db, now)
            kept_back = covered_by(rules, now)
            due: Counter[int] = Counter()
            for row in db.execute(self.store.sql.count).fetchall():
                lane, state, jobs = self.store.lane(db, row["lane"]), row["state"], row["jobs"]
                place = places[lane.queue, lane.task, lane.app]
                if state != State.READY:
                    if state in _PLACE:
                        place[_PLACE[state]] += jobs
                    continue
                later = self._later(db, row, now)
                place[_SCHEDULED] += later
                if kept_back(lane.queue, lane.task, lane.version):
                    place[_PAUSED] += jobs - later
                else:
                    due[row["lane"]] += jobs - later
            standing = LimitStanding(self.store, db, now, rules)
            for lane, paused, limited, ready in standing.sort(due):
                place = places[lane.queue, lane.task, lane.app]
                place[_PAUSED] += paused
                place[_LIMITED] += limited
                place[_READY] += ready
        return [
            Count(queue, task, *place, app=app)
            for (queue, task, app), place in sorted(places.items())
            if any(place)
        ]

    def _later(self, db: Db, row: Row, now: float) -> int:
        """How many of a tally's ready jobs are not due yet; those of this minute are counted."""
        starts = row["minute"] * 60
        if starts > now:
            return row["jobs"]
        if starts + 60 <= now:
            return 0
        parameters = {"lane": row["lane"], "minute": row["minute"], "now": now}
        return db.execute(self.store.sql.count_later, parameters).fetchone()["jobs"]

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        kinds = check_last(after, job, kind, before)
        sql = self.store.sql
        first = None if after is None else number_of(after)
        parameters: dict[str, Any] = {"after": first, "limit": limit}
        if job is not None:
            statement = sql.last_of if after is None else sql.history_of
            parameters["job"] = to_bytes(job)
        elif after is not None:
            statement = sql.history
        else:
            end = FARTHEST_POSITION if before is None else number_of(before)
            statement = sql.last if kinds in {(), ("attempt",)} else sql.last_told
            parameters |= {
                "kind": kinds[0] if kinds else None,
                "kinds": msgspec.json.encode(kinds).decode(),
                "before": end,
            }
        with self.store.reading() as db:
            rows = db.execute(statement, parameters).fetchall()
            if not rows and after is not None:
                self.refuse_ahead(db, after)
            events = [self.event(db, row) for row in rows]
        return events[::-1] if after is None else events

    def refuse_ahead(self, db: Db, after: Position) -> None:
        """Refuse a position that the history has not come to: behind it are no rows, for ever."""
        newest = db.execute(self.store.sql.newest).fetchone()["newest"]
        if number_of(after) > newest:
            raise ahead(after, position_text(newest))

    def event(self, db: Db, row: Row) -> Event:
        lane = None if row["lane"] is None else self.store.lane(db, row["lane"])
        return Event(
            position=position_text(row["position"]),
            kind=row["kind"],
            at=row["at"],
            job=None if row["job"] is None else from_bytes(row["job"]),
            queue=queue_in(row["data"]) if row["kind"] == "gauge" else lane and lane.queue,
            task=lane and lane.task,
            app=lane and lane.app,
            version=lane and lane.version,
            priority=lane and lane.priority,
            attempt=row["attempt"],
            failures=row["failures"],
            lapses=row["lapses"],
            state=state_in(row["state"]),
            reason=row["reason"],
            key=row["key"],
            enqueued_at=row["enqueued_at"],
            run_at=row["run_at"],
            started_at=row["started_at"],
            worker=row["worker"],
            tags=names_in(row["tags"]) or {},
            error=row["error"],
            body=row["body"],
            result=row["result"],
            data=row["data"],
            login=row["login"] if "roles" in self.store.traits.capabilities else None,
        )

    def why(self, job_id: str) -> Why:
        now = self.clock.now()
        job = self.get(job_id)
        ahead: int | None = None
        full: FullLimit | None = None
        before: Job[Any] | None = None
        if job is not None and job.state is State.READY:
            with self.store.reading() as db:
                raw = to_bytes(job_id)
                parcel = parcel_of(self.store, db, raw)
                first = raw if parcel is None else parcel[1][0]
                parameters = {"lane": job.lane.hash, "id": first, "now": now}
                in_parcel = int.from_bytes(raw, "big") - int.from_bytes(first, "big")
                ahead = (
                    int(db.execute(self.store.sql.ahead, parameters).fetchone()["jobs"]) + in_parcel
                )
                rules = rules_in_force(self.store, db, now)
                if limited(rules):
                    usage = Usage(self.store, db, now)
                    full = full_limit(usage.limits(rules), job, usage.holders)
                head = behind(self.store, db, rules, job)
                before = None if head is None else get_job(self.store, db, head)
        needs: list[NodeRow] = []
        if job is not None and job.state is State.WAITING and (place := place_of(job.body)):
            with self.store.reading() as db:
                rows = db.execute(self.store.sql.unmet, (place[1],)).fetchall()
                needs = [node_row(row) for row in rows]
        with self.store.reading() as db:
            in_force = rules_in_force(self.store, db, now)
        return explain(job_id, job, now, in_force, self.workers(), ahead, needs, full, before)

    def limit_uses(self) -> list[LimitUse]:
        now = self.clock.now()
        with self.store.reading() as db:
            rules = rules_in_force(self.store, db, now)
            if not limited(rules):
                return []
            usage, lease_time = Usage(self.store, db, now), self.store.lease_time()
            return [
                LimitUse(
                    rule.id,
                    usage.holders(rule, None),
                    [(lease_time - at, jobs) for at, jobs in usage.use_of(rule, None).starts],
                )
                for rule in rules
                if rule.kind is RuleKind.LIMIT and not rule.per_key
            ]

    def outputs(self, node: str) -> list[JobOutput]:
        raw, sql = to_bytes(node), self.store.sql
        outputs: list[JobOutput] = []
        with self.store.reading() as db:
            # Fetched all at once: one by one a driver takes twice as long.
            rows = db.execute(sql.outputs, (raw,)).fetchall()
            results = {row["job"]: row["result"] for row in rows}
            rows = db.execute(sql.outputs_withheld, (raw,)).fetchall()
            others = {row["id"]: state_in(row["state"]) for row in rows}
            for row in db.execute(sql.members, (raw,)).fetchall():
                ids = ids_between(row["first"], row["last"])
                names = names_between(row["first"], row["last"])
                for job, name in zip(ids, names, strict=True):
                    if job in others:  # a row that is there goes before a success that was
                        outputs.append(JobOutput(name, others[job], None))
                    elif job in results:
                        outputs.append(JobOutput(name, State.SUCCEEDED, results[job]))
                    else:  # it is about to run, or runs; or is not known any more
                        kept = get_job(self.store, db, job)
                        outputs.append(JobOutput(name, kept and kept.state, None))
        return outputs

    def workers(self) -> list[WorkerRow]:
        lease_time = self.store.lease_time()
        with self.store.reading() as db:
            leased: dict[str, int] = defaultdict(int)
            for row in db.execute(self.store.sql.running_leases):
                leased[row["worker"]] += len(row["marks"]) - row["marks"].count(SETTLED)
            return [
                msgspec.structs.replace(
                    msgspec.json.decode(row["declared"], type=WorkerRow),
                    claimed_at=row["claimed_at"],
                    running=row["held"] + leased[row["id"]],
                    alive=row["boot"] == self.store.boot and row["alive_until"] > lease_time,
                )
                for row in db.execute(self.store.sql.workers).fetchall()
            ]
