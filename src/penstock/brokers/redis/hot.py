"""What happens most often, in one round trip each: plain jobs in, claims, and jobs that succeed.

Whatever is more than that goes the usual way (see `atomic`). So does what was decided here from
something that is not so any more: the scripts compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.settlement import settled
from penstock.broker.traits import Traits
from penstock.broker.values import Batch, Claimed, Enqueued, Settlement, Wanted
from penstock.broker.views import Event
from penstock.broker.worker_lease import can_run, renewed
from penstock.brokers.memory.containers import RegisteredWorker
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.containers import MOST_FIELDS, packed, write_in_parts
from penstock.brokers.redis.new_rows import NewRows
from penstock.brokers.redis.rows import (
    LETTERS,
    event_row,
    id_bytes,
    id_of,
    job_of,
    lane_from,
    row_after,
)
from penstock.brokers.redis.scripts import Script
from penstock.brokers.redis.wire import Word
from penstock.enqueue.ids import is_derived
from penstock.enqueue.secrets import redact, secrets_until
from penstock.errors import StoreUnreachable
from penstock.flows.flow import Flow, member_of
from penstock.job import Job, Lane, Outcome, Parcel, State
from penstock.rules.queue_turns import QueueTurns
from penstock.rules.rule import Rule, RuleKind, rule_over

CLAIM = Script("claim")
MOST_REMEMBERED = 100_000  # claimed jobs, to be settled without reading them again
_TRIES = 5  # of a claim whose rules, lanes or worker are to be read first
_MORE = frozenset({RuleKind.LIMIT, RuleKind.ORDER})
_WORKER = packed(RegisteredWorker)
_RULE = packed(Rule)
_TIME = packed(float)
_UNSEEN = -1


class HotPaths:
    """The short ways of `enqueue`, `claim` and `settle`, each with the usual one behind it."""

    def __init__(
        self,
        server: ServerCalls,
        clock: AnyClock,
        traits: Traits,
        *,
        enqueue: Callable[..., Enqueued],
        claim: Callable[..., Claimed],
        settle: Callable[[Sequence[Settlement]], list[bool]],
        turns: QueueTurns,
    ) -> None:
        self._server = server
        self._clock = clock
        self._traits = traits
        self._usual_enqueue = enqueue
        self._usual_claim = claim
        self._usual_settle = settle
        self._turns = turns
        self._version = b""  # of the rules; empty: not read yet
        self._rules: list[Rule] = []
        self._lanes: list[tuple[Lane, bytes]] = []  # by their hash
        self._workers: dict[str, bytes] = {}  # the rows of workers, as they were seen last
        # Running jobs with their rows, as this process claimed them.
        self._claimed: dict[str, tuple[bytes, Job[Any]]] = {}
        self._pruned: bytes | None = None

    # Enqueue

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        more = batch is not None or connection is not None or flow is not None
        if jobs and not more and all(map(_is_simple, jobs)) and self._store(jobs):
            return Enqueued()
        return self._usual_enqueue(jobs, batch=batch, connection=connection, flow=flow)

    def _store(self, jobs: Sequence[Job[Any] | Parcel]) -> bool:
        """Store jobs of which none was stored before; False, and nothing, if one was."""
        now = self._clock.now()
        change = RedisChange(self._server, now=now)
        change.adds = True
        if self._pruned is None:
            self._pruned = change.look("HGET", "meta", "pruned") or b""
        change.expect(("HGET", "meta", "pruned"), self._pruned or None)
        oldest = max(now - self._traits.retention, float(self._pruned or 0.0))
        new = NewRows(now, oldest)
        for offered in jobs:
            new.add(offered)
        if not new.write(change):
            return False
        change.hints = True
        if change.commit():
            return True
        self._pruned = None
        return False

    # Claim

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        accepted = self.settle(settlements) if settlements else []
        try:
            found = self._claim_all(wanted)
        except StoreUnreachable:
            if not settlements:
                raise
            # They are settled, and the caller has to know; its next claim will say the rest.
            return Claimed([[] for _ in wanted], accepted, self._clock.now())
        return Claimed(found.jobs, accepted, found.next_at)

    def _claim_all(self, wanted: Sequence[Wanted]) -> Claimed:
        jobs: list[list[Job[Any]]] = []
        times: list[float] = []
        for each in wanted:
            found = self._claim(each) if each.limit > 0 else None
            if found is None:
                found = self._usual_claim([each])
            jobs += found.jobs
            if found.next_at is not None:
                times.append(found.next_at)
        return Claimed(jobs, [], min(times, default=None))

    def _claim(self, wanted: Wanted) -> Claimed | None:
        """A claim where nothing but pauses is in force; None: it takes the usual way."""
        if not self._version:
            self._read_rules()
        for _ in range(_TRIES):
            if any(rule.kind in _MORE or rule.by_job for rule in self._rules):
                # Whether that is so still costs a look.
                if self._server.call("GET", self._key("rv")) in {self._version, None}:
                    return None
                self._read_rules()
                continue
            now = self._clock.now()
            row, words = self._claim_words(wanted, now)
            reply = self._server.script(CLAIM, *words)
            word = reply[0]
            if not word:
                self._workers[wanted.worker.id] = row
                return self._handed_out(wanted.worker.id, reply, now)
            if word == b"rules":
                self._read_rules()
            elif word == b"lanes":
                self._read_lanes()
            elif word == b"worker":
                self._workers[wanted.worker.id] = reply[1]
            else:
                return None
        return None

    def _claim_words(self, wanted: Wanted, now: float) -> tuple[bytes, list[Word]]:
        worker = wanted.worker
        before = self._workers.get(worker.id, b"")
        known: RegisteredWorker | None = _WORKER.decode(before) if before else None
        claiming = msgspec.structs.replace(worker, claimed_at=now)
        lease = renewed(known and known.lease, worker.lease, self._clock.monotonic())
        row: bytes = _WORKER.encode(RegisteredWorker(claiming, lease))
        sizes = wanted.sizes or {}
        tasks: dict[str, int] = {}
        queues: dict[str, int] = {}
        lanes: list[Word] = []
        for lane, name in self._lanes:
            if can_run(worker, wanted.queues, lane):
                task = tasks.setdefault(lane.task, len(tasks) + 1)
                queue = queues.setdefault(lane.queue, len(queues) + 1)
                over = rule_over(self._rules, lane.queue, lane.task, now, lane.version)
                lanes += (name, lane.priority, task, queue, int(over is None))
        times = self._turns.times(worker.id)
        return row, [
            *(repr(now), self._version, len(self._lanes), worker.id, before, row),
            *(wanted.limit, len(tasks), *(sizes.get(task, wanted.limit) for task in tasks)),
            *(len(queues), *(times.get(queue, 0) for queue in queues)),
            *lanes,
        ]

    def _handed_out(self, worker: str, reply: Sequence[Any], now: float) -> Claimed:
        if len(self._claimed) > MOST_REMEMBERED:
            self._claimed.clear()
        jobs: list[Job[Any]] = []
        for field, row in zip(reply[2::2], reply[3::2], strict=True):
            job_id = id_of(field)
            job = job_of(job_id, row)
            self._claimed[job_id] = (row, job)
            jobs.append(job)
        if jobs:
            one = len(self._lanes) == 1
            queues = {jobs[0].queue: len(jobs)} if one else Counter(job.queue for job in jobs)
            self._turns.took(worker, queues)
        times = [rule.until for rule in self._rules if rule.until is not None and rule.until > now]
        if reply[1]:
            times.append(float(reply[1]))
        return Claimed([jobs], [], min(times, default=None))

    def _read_rules(self) -> None:
        version, rows = self._server.many([("GET", self._key("rv")), ("HVALS", self._key("rules"))])
        self._version = version or b"0"
        self._rules = [_RULE.decode(row) for row in rows]

    def _read_lanes(self) -> None:
        rows = self._server.call("HGETALL", self._key("lanes"))
        lanes = [(lane_from(row), name) for name, row in zip(rows[::2], rows[1::2], strict=True)]
        self._lanes = sorted(lanes, key=lambda lane: lane[0].hash)

    # Settle

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        rows = [self._claimed.pop(job.id, None) for job, _ in pairs]
        rules = any(rule.kind in _MORE for rule in self._rules)
        if pairs and self._version and not rules and self._succeed(pairs, rows):
            return [True] * len(pairs)
        return self._usual_settle(pairs)

    def _succeed(
        self, pairs: Sequence[Settlement], rows: Sequence[tuple[bytes, Job[Any]] | None]
    ) -> bool:
        """Settle claimed jobs that succeeded; False, and nothing, if one is more than that."""
        now = self._clock.now()
        change = RedisChange(self._server, now=now)
        seen: list[Word] = []
        expected: list[bytes] = []
        after_rows: list[Word] = []
        ended: list[Word] = []
        held: dict[str, list[Word]] = {}
        counts: dict[bytes, int] = {}
        for (claimed, outcome), known in zip(pairs, rows, strict=True):
            if known is None or not _just_succeeds(outcome):
                return False
            row, job = known
            # A claim that a failover lost had the same attempt, at another time.
            same = (job.attempt, job.claimed_at) == (claimed.attempt, claimed.claimed_at)
            if not same or not _is_alone(job):
                return False
            after = settled(job, outcome, now, cancelled=False)
            if after.keep_until is not None or secrets_until(after.body) is not None:
                return False
            member = id_bytes(job.id)
            seen.append(member)
            expected.append(row)
            after_rows += (member, row_after(row, after))
            ended += (after.ended_at or 0.0, member)
            held.setdefault(job.worker or "", []).append(member)
            name = row[1:9] + LETTERS[State.RUNNING]
            counts[name] = counts.get(name, 0) - 1
            change.tell(_attempt_row(job, after, outcome, now), job.id, "attempt")
        if len(set(seen)) != len(seen):
            return False
        change.expect(("GET", "rv"), None if self._version == b"0" else self._version)
        for start in range(0, len(seen), MOST_FIELDS):
            part = slice(start, start + MOST_FIELDS)
            change.expect(("HMGET", "j", *seen[part]), expected[part])
        for worker, members in held.items():
            write_in_parts(change, ("HDEL", f"held:{worker}"), members, MOST_FIELDS)
        write_in_parts(change, ("SREM", "asked"), seen, MOST_FIELDS)
        write_in_parts(change, ("HSET", "j"), after_rows, 2 * MOST_FIELDS)
        write_in_parts(change, ("ZADD", "ended"), ended, 2 * MOST_FIELDS)
        for name, number in counts.items():
            change.write("HINCRBY", "t", name, number)
        return change.commit()

    def _key(self, name: str) -> str:
        return f"{self._server.prefix}{name}"


def _is_simple(job: Job[Any] | Parcel) -> bool:
    """Whether it is stored ready, and only its lane and its time point at it."""
    if not isinstance(job, Job):
        return not is_derived(job.id)
    return (
        not job.tags
        and not job.search
        and job.key is None
        and job.unique is None
        and job.expires_at is None
        and not is_derived(job.id)
    )


def _is_alone(job: Job[Any]) -> bool:
    """Whether nobody but its worker has to do with its end."""
    return not job.tags and job.key is None and job.unique is None and member_of(job.body) is None


def _just_succeeds(outcome: Outcome) -> bool:
    return (
        outcome.state is State.SUCCEEDED
        and outcome.keep
        and outcome.keep_for is None
        and not outcome.spawned
        and outcome.flow is None
    )


def _attempt_row(job: Job[Any], after: Job[Any], outcome: Outcome, now: float) -> bytes:
    """What the history says of an attempt that succeeded."""
    return event_row(
        Event(
            position="",
            kind="attempt",
            at=now if outcome.ended_at is None else outcome.ended_at,
            job=job.id,
            app=job.app,
            queue=job.queue,
            task=job.task,
            version=job.version,
            priority=job.priority,
            attempt=job.attempt,
            failures=after.failures,
            lapses=after.lapses,
            key=job.key,
            state=after.state,
            reason=after.reason,
            enqueued_at=job.enqueued_at,
            run_at=job.enqueued_at if after.run_at is None else after.run_at,
            tags=job.tags,
            started_at=outcome.started_at,
            worker=job.worker,
            error=outcome.error,
            body=redact(job.body),
            result=outcome.result,
        )
    )
