"""Upkeep: chores by the clock, on the memory broker."""

from __future__ import annotations

import threading

from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.job import State, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_job,
    a_schedule,
    a_worker,
    begun,
    claim,
    enqueue_and_claim,
    settle,
)
from penstock.worker.upkeep import Upkeep


def test_what_a_dead_worker_held_is_recovered_within_a_lease_and_two_seconds(memory_broker, clock):
    keeper = a_worker("keeper")
    upkeep = Upkeep(memory_broker, clock, "keeper")
    for _ in range(2):
        memory_broker.renew([keeper])
        clock.advance(seconds=10)
        upkeep.run_due()
    job = enqueue_and_claim(memory_broker, clock)
    memory_broker.renew([keeper])

    recovered = 0
    for _ in range(17):
        clock.advance(seconds=1)
        memory_broker.renew([keeper])
        recovered += upkeep.run_due()

    found = memory_broker.get(job.id)
    assert recovered == 1
    assert (found.state, found.lapses) == (State.READY, 1)


def test_one_that_was_away_itself_gives_up_nobody(memory_broker, clock):
    enqueue_and_claim(memory_broker, clock)
    memory_broker.renew([a_worker("keeper")])
    upkeep = Upkeep(memory_broker, clock, "keeper")
    upkeep.run_due()

    clock.advance(minutes=10)
    memory_broker.renew([a_worker("keeper")])

    assert upkeep.run_due() == 0


def test_it_does_not_ask_for_recovery_all_the_time(memory_broker, clock):
    memory_broker.renew([a_worker("keeper", lease=9)])
    upkeep = Upkeep(memory_broker, clock, "keeper", lease=9)
    for _ in range(2):
        clock.advance(seconds=5)
        memory_broker.renew([a_worker("keeper", lease=9)])
    upkeep.run_due()
    memory_broker.enqueue([a_job(clock)])
    claim(memory_broker, worker="short-lived", lease=1)
    clock.advance(seconds=1.4)

    assert upkeep.run_due() == 0

    clock.advance(seconds=0.2)

    assert upkeep.run_due() == 1


def test_what_ended_long_ago_is_pruned_once_an_hour(memory_broker, clock):
    job = enqueue_and_claim(memory_broker, clock)
    settle(memory_broker, job, begun(succeeded(), clock.now()))
    upkeep = Upkeep(memory_broker, clock, "keeper", retention=86400)

    clock.advance(hours=23)
    upkeep.run_due()
    upkeep.close(timeout=20)
    assert memory_broker.history(job=job.id)

    clock.advance(minutes=61)
    upkeep.run_due()
    upkeep.close(timeout=20)
    assert not memory_broker.history(job=job.id)


class Slow(MemoryBroker):
    """A broker that prunes when the test lets it; the first time it fails."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.go = threading.Event()
        self.asked = 0

    def prune(self, before: float) -> int:
        self.asked += 1
        if self.asked == 1:
            raise StoreUnreachable("no answer")
        assert self.go.wait(20)
        return super().prune(before)


def test_a_prune_holds_up_nothing_and_is_tried_again_if_it_failed(clock):
    broker = Slow(clock)
    upkeep = Upkeep(broker, clock, "keeper")

    clock.advance(hours=1)
    upkeep.run_due()
    upkeep.close(timeout=20)
    clock.advance(minutes=1)
    upkeep.run_due()  # returns while it prunes
    clock.advance(hours=1)
    upkeep.run_due()
    broker.go.set()
    upkeep.close(timeout=20)

    assert broker.asked == 2


def test_without_a_retention_nothing_is_forgotten(memory_broker, clock):
    job = enqueue_and_claim(memory_broker, clock)
    settle(memory_broker, job, begun(succeeded(), clock.now()))
    upkeep = Upkeep(memory_broker, clock, "keeper", retention=None)

    clock.advance(days=400)
    upkeep.run_due()
    upkeep.close(timeout=20)

    assert memory_broker.history(job=job.id)


def test_the_slots_of_schedules_are_decided_when_they_are_due(memory_broker, clock):
    """D2, D10: with only workers, a schedule runs."""
    upkeep = Upkeep(memory_broker, clock, "keeper", declared=lambda: DECLARED)
    upkeep.run_due()
    assert 0 < upkeep.seconds_left() <= 5

    clock.advance(minutes=59)
    upkeep.run_due()
    assert claim(memory_broker) == []
    clock.advance(minutes=1)
    upkeep.run_due()

    assert [job.task for job in claim(memory_broker, limit=9)] == ["mail:sweep"]


DECLARED = {"hourly": a_schedule()}


def test_every_minute_has_its_gauges_whoever_comes_first(memory_broker, clock):
    """DESIGN 4: one per queue and minute in the whole fleet."""
    memory_broker.enqueue([a_job(clock)])
    fleet = [Upkeep(memory_broker, clock, f"keeper-{number}") for number in range(3)]
    began = clock.now() // 60

    for _ in range(300):
        clock.advance(seconds=1)
        for upkeep in fleet:
            upkeep.run_due()

    gauges = [row.at // 60 for row in memory_broker.history() if row.kind == "gauge"]
    assert len(gauges) == len(set(gauges))
    assert {began + number for number in range(1, 5)} <= set(gauges)


def test_gauges_that_cannot_be_written_keep_nobody_from_work(clock):
    class Refusing(MemoryBroker):
        def gauge(self) -> int:
            raise StoreUnreachable("no")

    broker = Refusing(clock)
    upkeep = Upkeep(broker, clock, "keeper")

    clock.advance(minutes=2)

    assert upkeep.run_due() == 0
