"""Claim: which due jobs a worker is handed, as far as rules and limits allow. None of it locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.broker.values import Wanted
from penstock.broker.worker_lease import MOST_SUSPECTS, can_run
from penstock.brokers.memory.key_turns import Turns
from penstock.brokers.memory.rules import MemoryRules
from penstock.brokers.memory.store import MemoryStore
from penstock.job import Job, Lane
from penstock.rules.key_order import in_turn, policies
from penstock.rules.limits import Limits
from penstock.rules.queue_turns import QueueTurns
from penstock.rules.rule import Rule, rule_over, rule_over_job


class DueLane(NamedTuple):
    """A lane with due jobs."""

    worth: float
    head: float  # when its oldest job was due
    lane: Lane

    def place(self) -> tuple[float, float, int]:
        """Sort key, best first."""
        return -self.worth, self.head, self.lane.hash


class MemoryClaims:
    """Claims of workers."""

    def __init__(
        self, store: MemoryStore, rules: MemoryRules, turns: Turns, queue_turns: QueueTurns
    ) -> None:
        self.queue_turns = queue_turns
        self._store = store
        self._rules = rules
        self._turns = turns

    def claim(self, wanted: Wanted) -> list[Job[Any]]:
        if wanted.limit <= 0:
            return []
        store, now = self._store, self._store.clock.now()
        store.keep_alive(wanted.worker, claimed_at=now)
        store.expire()
        rules = self._rules.all()
        claim = _OneClaim(store, rules, self._turns, wanted)
        lanes = sorted(self._due_lanes(wanted, rules, now), key=DueLane.place)
        lanes = in_turn(lanes, claim.policy_of, lambda offer: offer.lane)
        self.queue_turns.hand_out(wanted.worker.id, lanes, wanted.limit, claim.take)
        store.write_down(claim.limits.started)
        return claim.taken

    def next_at(self, wanted: Wanted) -> float | None:
        """When time alone gives this worker more to claim."""
        store, now = self._store, self._store.clock.now()
        times = [rule.until for rule in self._rules.all()]
        times += [
            line.next_due(now)
            for lane, line in store.lines.items()
            if can_run(wanted.worker, wanted.queues, lane)
        ]
        if store.free_in is not None:
            times.append(now + store.free_in)
        return min((at for at in times if at is not None and at > now), default=None)

    def _due_lanes(self, wanted: Wanted, rules: Sequence[Rule], now: float) -> list[DueLane]:
        return [
            # Ageing: a minute of waiting is worth one step of priority.
            DueLane(lane.priority + max(0.0, now - head[0]) / 60, head[0], lane)
            for lane, line in self._store.lines.items()
            if can_run(wanted.worker, wanted.queues, lane)
            and rule_over(rules, lane.queue, lane.task, now, lane.version) is None
            and (head := line.head(now))
        ]


class _OneClaim:
    """What one claim took so far."""

    def __init__(
        self,
        store: MemoryStore,
        rules: Sequence[Rule],
        turns: Turns,
        wanted: Wanted,
    ) -> None:
        self.taken: list[Job[Any]] = []
        self.limits = Limits(rules, store.use_of, store.clock.monotonic())
        self._store = store
        self._by_job = [rule for rule in rules if rule.by_job]
        self.policy_of = policies(rules)  # of the queues that are handed out by key
        self._turns = turns
        self._worker = wanted.worker.id
        self._limit = wanted.limit
        self._left = dict(wanted.sizes or {})  # of each task
        self._suspects = 0
        self._now = store.clock.now()
        store.free_in = None

    def take(self, offer: DueLane, most: int) -> int:
        """Hand out up to `most` jobs of a lane; how many it gave."""
        store, lane, before = self._store, offer.lane, len(self.taken)
        policy = self.policy_of.get(lane.queue)
        for job in self._turns.due(lane, policy) if policy else store.due(lane):
            if len(self.taken) - before >= most or self._left.get(lane.task, 1) <= 0:
                break
            if job.spared and self._suspects >= MOST_SUSPECTS:
                break
            if self._by_job and rule_over_job(self._by_job, job, self._now):
                continue
            if not store.leaves_room(self.limits, job):
                if not self.limits.over(lane, per_key=True):
                    break
                continue
            self._suspects += job.spared > 0
            self._left[lane.task] = self._left.get(lane.task, self._limit) - 1
            within = self.limits.start_within(lane)
            self.taken.append(store.start(job, self._worker, within))
            if policy:
                self._turns.took(lane, job)
        return len(self.taken) - before
