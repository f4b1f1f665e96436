"""What people see of shards: merged by time where there is an order, added up where there is none.

A shard that is away is left out; `Traits.missing` says so. When a bucket moves, its history and its
jobs that succeeded stay on the shard where they were written.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import add
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.move import StaleMap
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import check_last
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.brokers.sharded.finding import MOST_FOUND, PageOverShards
from penstock.brokers.sharded.positions import behind, last, placed, read_position
from penstock.brokers.sharded.quota_parts import all_uses, limits_over, ready_elsewhere
from penstock.brokers.sharded.quotas import Quotas
from penstock.brokers.sharded.shards import Shard, Shards, bucket_in
from penstock.flows.flow import FlowPage, FlowRow, JobOutput
from penstock.job import Job
from penstock.operate.why import full_limit, on_no_shard, under_limit

# Kinds of rows that every shard writes alike.
_ON_ALL = ("rule", "subscription", "queue", "worker", "environment")


class ShardedLooks:
    """Reads of jobs, flows, workers and the history."""

    def __init__(self, shards: Shards, quotas: Quotas, now: Callable[[], float]) -> None:
        self._shards = shards
        self._quotas = quotas
        self._now = now

    # One shard has it; of a bucket that moved the others have the history before

    def get(self, job_id: str) -> Job[Any] | None:
        shard = self._shards.of(job_id)
        found = shard.call(lambda store: store.get(job_id))
        for other in [] if found else self._older(shard, [job_id]):
            found = found or self._found(other, [job_id]).get(job_id)
        return found

    def why(self, job_id: str) -> Why:
        found = self._why(job_id)
        if found.cause in {"order", "stuck", "limit", "next"}:
            found = self._unless_nobody_claims(found)
        limits = self._quotas.limits() if found.cause == "limit" else []
        job = self.get(job_id) if limits else None
        if job is None:
            return found
        looks = self._quotas.looks()
        full = full_limit(
            limits_over(limits, looks.values()),
            job,
            lambda rule, _: all_uses(rule, looks.values()).running,
        )
        if full is not None:
            return under_limit(found, full, self._now())
        [limit, *_] = [each for each in limits if each.holds(job.queue, job.task, self._now())] or [
            None
        ]
        if limit is None:
            return found
        sentence = self._quotas.not_here(limit, self._shards.of(job_id))
        return msgspec.structs.replace(found, sentence=sentence)

    def _unless_nobody_claims(self, found: Why) -> Why:
        """The same, or that no worker's URL names the shard that the job is on."""
        shard = self._shards.of(found.job)
        job = shard.call(lambda store: store.get(found.job))
        if job is None:
            return found
        return on_no_shard(found, job, shard.name, shard.call(lambda store: store.workers()))

    def _why(self, job_id: str) -> Why:
        shard = self._shards.of(job_id)
        if self._older(shard, [job_id]) and shard.call(lambda store: store.get(job_id)) is None:
            for other in self._shards.others(shard):
                if self._found(other, [job_id]):
                    return other.call(lambda store: store.why(job_id))
        return shard.call(lambda store: store.why(job_id))

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        shard = self._shards.of(job_id)
        found = shard.call(lambda store: store.notes(job_id, kind))
        for other in [] if found else self._older(shard, [job_id]):
            found = found or self._shards.unless_away(
                other, lambda store: store.notes(job_id, kind), []
            )
        return found

    def flow(self, flow_id: str) -> FlowRow | None:
        shard = self._shards.of(flow_id)
        found = shard.call(lambda store: store.flow(flow_id))
        if found is None:
            self._older(shard, [flow_id])
        return found

    def outputs(self, node: str) -> list[JobOutput]:
        shard = self._shards.of(node)
        found = shard.call(lambda store: store.outputs(node))
        gone = [output.job for output in found if output.state is None]
        earlier: dict[str, Job[Any]] = {}
        for other in self._older(shard, [node]) if gone or not found else []:
            earlier |= self._found(other, gone)
        return [
            JobOutput(output.job, job.state, job.result)
            if output.state is None and (job := earlier.get(output.job))
            else output
            for output in found
        ]

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        found: dict[str, Job[Any]] = {}
        for shard, some in self._shards.grouped(ids).items():
            here = shard.call(_getting(some))
            gone = [job_id for job_id in some if job_id not in here]
            for other in self._older(shard, gone):
                found |= self._found(other, gone)
            found |= here
        return {job_id: found[job_id] for job_id in ids if job_id in found}

    def _older(self, shard: Shard, ids: Sequence[str]) -> list[Shard]:
        """Who else may have the history of jobs that this shard does not know.

        Raises if the shard's buckets moved since this call was planned: it is planned anew.
        """
        if not ids:
            return []
        known = self._shards.plan
        if self._shards.look_again() and any(
            self._shards.newest.owner(bucket_in(job_id)) != known.map.owner(bucket_in(job_id))
            for job_id in ids
        ):
            raise StaleMap(f"buckets of shard {shard.name} moved")
        if not any(known.map.version(bucket_in(job_id)) for job_id in ids):
            return []
        return self._shards.others(shard)

    def _found(self, shard: Shard, ids: Sequence[str]) -> dict[str, Job[Any]]:
        return self._shards.unless_away(shard, _getting(ids), {})

    # All have some

    def count(self) -> list[Count]:
        sums: dict[tuple[str, str, str], Count] = {}
        for counts in self._shards.reached(lambda store: store.count()).values():
            for count in counts:
                names = (count.queue, count.task, count.app)
                sums[names] = _added(sums[names], count) if names in sums else count
        counts = [sums[names] for names in sorted(sums)]
        limited = any(count.limited for count in counts)
        limits = self._quotas.limits() if limited else []
        return ready_elsewhere(counts, limits, self._quotas.looks()) if limits else counts

    def workers(self) -> list[WorkerRow]:
        rows: dict[str, list[WorkerRow]] = {}
        for found in self._shards.reached(lambda store: store.workers()).values():
            for row in found:
                rows.setdefault(row.id, []).append(row)
        return [_as_one(rows[worker]) for worker in sorted(rows)]

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        return PageOverShards(self._shards, filter, limit).read(after)

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        limit = min(max(limit, 1), MOST_FOUND)
        pages = self._shards.reached(lambda store: store.flows(name, find, after, limit)).values()
        rows = list(heapq.merge(*(page.flows for page in pages), key=_id_of, reverse=True))
        more = len(rows) > limit or any(page.after is not None for page in pages)
        found = rows[:limit]
        return FlowPage(found, found[-1].id if more and found else None)

    # History

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        check_last(after, job, kind, before)
        self._shards.join_named()
        names = self._shards.named
        if job is not None:
            return self._history_of(job, after, limit)
        limit = max(limit, 0)
        if after is None:
            end = None if before is None else read_position(before, names)
            ends = {name: None if end is None else end.end_for(name) for name in names}
            rows = {name: self._last(name, ends[name], limit, kind) for name in names}
            return last(names, rows, limit)
        places = read_position(after, names)
        return behind(places, {name: self._next(name, places.of(name), limit) for name in names})[
            :limit
        ]

    def _next(self, name: str, after: Position, limit: int) -> list[Event]:
        """The rows of one shard behind a position."""
        found: list[Event] = []
        while True:
            rows = self._rows(name, after, limit)
            found += self._shown(name, rows)
            if len(rows) < limit or len(found) >= limit:
                return found
            after = rows[-1].position

    def _last(
        self, name: str, end: Position | None, limit: int, kind: str | Collection[str] | None
    ) -> list[Event]:
        """The last rows of one shard before a position."""
        found: list[Event] = []
        while True:
            rows = self._rows(name, None, limit, kind=kind, before=end)
            found[:0] = self._shown(name, rows)
            if len(rows) < limit or len(found) >= limit:
                return found
            end = rows[0].position

    def _rows(self, name: str, after: Position | None, limit: int, **narrowed: Any) -> list[Event]:
        """Rows of one shard; none of one that is away."""
        shard = self._shards.named[name]
        if not limit or self._shards.skips(shard):
            return []
        return self._shards.unless_away(
            shard, lambda store: store.history(after, limit, **narrowed), []
        )

    def _shown(self, name: str, rows: Sequence[Event]) -> list[Event]:
        """All rows; what all shards wrote alike is shown once."""
        if name == self._shards.all[0].name:
            return list(rows)
        return [row for row in rows if row.kind not in _ON_ALL]

    def _history_of(self, job: str, after: Position | None, limit: int) -> list[Event]:
        shard, names = self._shards.of(job), self._shards.named
        places = read_position(BEGINNING if after is None else after, names)
        asked = [shard]
        if self._shards.map.version(bucket_in(job)):
            asked += self._shards.others(shard)
        rows: dict[str, Sequence[Event]] = {}
        for each in asked:
            part = None if after is None else places.of(each.name)
            verb = _history_of(part, limit, job)
            rows[each.name] = (
                each.call(verb) if each is shard else self._shards.unless_away(each, verb, [])
            )
        if len(rows) > 1:
            return last(names, rows, limit) if after is None else behind(places, rows)[:limit]
        parts = dict(places.parts)
        found: list[Event] = []
        for row in rows[shard.name]:
            parts[shard.name] = row.position
            found.append(placed(row, parts, shard.name))
        return found


def _added(one: Count, other: Count) -> Count:
    numbers = map(add, msgspec.structs.astuple(one)[2:-1], msgspec.structs.astuple(other)[2:-1])
    return Count(one.queue, one.task, *numbers, app=one.app)


def _as_one(rows: Sequence[WorkerRow]) -> WorkerRow:
    """A worker that every shard knows: what it holds on all of them."""
    claims = [row.claimed_at for row in rows if row.claimed_at is not None]
    newest = max(rows, key=lambda row: row.claimed_at or 0.0)
    return msgspec.structs.replace(
        newest,
        running=sum(row.running for row in rows),
        alive=any(row.alive for row in rows),
        claimed_at=max(claims, default=None),
        stale=max(row.stale for row in rows),
    )


def _id_of(row: FlowRow) -> str:
    return row.id


def _getting(ids: Sequence[str]) -> Callable[[Broker], dict[str, Job[Any]]]:
    return lambda store: store.get_many(ids)


def _history_of(
    after: Position | None, limit: int, job: str
) -> Callable[[Broker], Sequence[Event]]:
    return lambda store: store.history(after, limit, job)
