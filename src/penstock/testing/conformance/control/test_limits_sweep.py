"""Limits swept over a whole history: workers come, die and are recovered, and clocks are set.

In the test's own time, so that minutes of it pass at once; tests/stories/test_limits.py does the
same with real processes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from penstock.broker.protocol import Broker
from penstock.job import Job, failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, a_worker, begun, claim_for, some_jobs

KEYS = (None, None, "ada", "bob")
MOST, MOST_PER_KEY, RATE = 4, 2, (6, 10.0)
LEASE = 15.0


class Sweep:
    """Everybody's claims, in the order they were made, and who still holds what."""

    def __init__(self, broker: Broker, clock: Clock, seed: int) -> None:
        self.broker = broker
        self.clock = clock
        self.chance = random.Random(seed)
        self.held: dict[str, tuple[str, Job]] = {}  # by id: the worker, and its claim
        self.starts: list[float] = []  # monotonic
        self.ended = self.kills = 0
        self._names = 0
        self.workers = [self.new_worker() for _ in range(3)]

    def new_worker(self) -> str:
        self._names += 1
        return f"worker-{self._names}"

    def claim(self) -> None:
        worker = self.chance.choice(self.workers)
        limit = self.chance.randint(1, 8)
        for job in claim_for(self.broker, a_worker(worker, lease=LEASE), None, limit):
            assert job.id not in self.held, "handed out twice"
            self.held[job.id] = (worker, job)
            self.starts.append(self.clock.monotonic())

    def settle(self) -> None:
        mine = [(id, job) for id, (worker, job) in self.held.items() if worker in self.workers]
        chosen = self.chance.sample(mine, min(len(mine), self.chance.randint(0, 3)))
        ends = [failed("no") if self.chance.random() < 0.1 else succeeded() for _ in chosen]
        pairs = [
            (job, begun(end, self.clock.now())) for (_, job), end in zip(chosen, ends, strict=True)
        ]
        assert all(self.broker.settle(pairs))
        self.ended += len(chosen)
        for id, _ in chosen:
            del self.held[id]

    def kill(self) -> None:
        """A worker is silent from now on; another comes in its place."""
        place = self.chance.randrange(len(self.workers))
        self.workers[place] = self.new_worker()
        self.kills += 1

    def recover(self) -> None:
        """What dead workers held is free, once the store says so."""
        self.broker.recover()
        alive = {row.id for row in self.broker.workers()}
        self.held = {id: kept for id, kept in self.held.items() if kept[0] in alive}

    def pass_time(self) -> None:
        self.clock.advance(seconds=self.chance.choice([0.0, 0.1, 0.5, 2.0]))
        self.broker.renew([a_worker(worker, lease=LEASE) for worker in self.workers])

    def set_clock(self) -> None:
        self.clock.jump(self.chance.choice([-3600.0, -7.0, 3.0, 3600.0]))

    def check(self) -> None:
        """At this instant, as leases count."""
        assert len(self.held) <= MOST
        for key in ("ada", "bob"):
            assert sum(job.key == key for _, job in self.held.values()) <= MOST_PER_KEY
        assert sum(count.running for count in self.broker.count()) == len(self.held)


def most_in_a_window(starts: Sequence[float], seconds: float) -> int:
    most = first = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def sweep(broker: Broker, clock: Clock, seed: int, steps: int) -> None:
    limit = RuleKind.LIMIT
    broker.put(Rule(limit, queue="default", running=MOST))
    broker.put(Rule(limit, queue="default", running=MOST_PER_KEY, per_key=True))
    broker.put(Rule(limit, task="mail:send", rate=RATE))
    work = Sweep(broker, clock, seed)
    acts = [work.claim, work.settle, work.pass_time, work.recover, work.set_clock, work.kill]
    weights = [8, 6, 8, 2, 1, 1]
    for step in range(steps):
        if step % 40 == 0:
            broker.enqueue(some_jobs(clock, 5))
            broker.enqueue([a_job(clock, key=work.chance.choice(KEYS)) for _ in range(10)])
        [act] = work.chance.choices(acts, weights)
        act()
        work.check()

    assert most_in_a_window(work.starts, RATE[1]) <= RATE[0]
    assert work.kills
    assert work.ended > steps / 40


@pytest.mark.needs("limits across buckets")
@pytest.mark.parametrize("seed", range(2))
def test_no_limit_is_ever_exceeded(broker, clock, seed):
    """V25, V26, G31, G40: with kills and clock jumps: not one violation."""
    sweep(broker, clock, seed, steps=400)
