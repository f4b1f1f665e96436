"""A receiver of a manager over shards: it knows no store, and gets the jobs of all of them."""

from __future__ import annotations

import threading

import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.manager.server import Manager
from tests.brokers.sharded.unplugged import IN_A, IN_B, Unplugged, job_in, sharded
from tests.manager.test_receivers import NEW, until


class Heard(Unplugged):
    """A store that notes which threads call it."""

    def __init__(self) -> None:
        super().__init__(SYSTEM_CLOCK)
        self.threads: list[threading.Thread] = []

    def _called(self, verb, carry_out, *args, **named):
        self.threads.append(threading.current_thread())
        return super()._called(verb, carry_out, *args, **named)


@pytest.fixture
def stores():
    return Heard(), Heard()


@pytest.fixture
def broker(stores):
    broker = sharded(SYSTEM_CLOCK, *stores)
    yield broker
    broker.close()


@pytest.fixture
def serving(broker):
    with Manager(broker, "127.0.0.1:0") as manager:
        yield manager


def ended(broker) -> int:
    return sum(1 for row in broker.history() if row.kind == "attempt")


def test_a_receiver_makes_no_statement_and_gets_the_jobs_of_all_shards(
    broker, stores, serving, connect, enqueue
):
    jobs = [job_in(SYSTEM_CLOCK, bucket) for bucket in (IN_A, IN_B) * 10]
    broker.enqueue(jobs)
    for store in stores:
        store.threads.clear()

    receiver = connect(serving, credits=20)
    received = receiver.jobs(20)
    assert set(receiver.end(received)) == {"SETTLED"}
    receiver.grant(1)
    enqueue(serving, NEW)
    [last] = receiver.jobs()
    receiver.end([last])

    assert {job.id for job in received} == {job.id for job in jobs}
    callers = [set(store.threads) for store in stores]  # this thread is the receiver
    assert all(callers)
    assert threading.current_thread() not in set.union(*callers)
    assert until(lambda: ended(broker) == 21)


def test_when_a_shard_is_away_receivers_get_the_jobs_of_the_others(
    broker, stores, serving, connect
):
    here, there = job_in(SYSTEM_CLOCK, IN_A), job_in(SYSTEM_CLOCK, IN_B)
    broker.enqueue([here, there])
    stores[1].away = True

    receiver = connect(serving, credits=2)
    [job] = receiver.jobs()
    assert job.id == here.id
    stores[1].away = False

    [job] = receiver.jobs()
    assert job.id == there.id


def test_a_receiver_of_a_part_gets_the_jobs_of_that_part_alone(stores, broker, connect):
    """V33: what its manager takes; another manager takes the other part."""
    jobs = [job_in(SYSTEM_CLOCK, bucket) for bucket in (IN_A, IN_B) * 5]
    broker.enqueue(jobs)
    part = sharded(SYSTEM_CLOCK, *stores, claim_from=frozenset("b"))
    with Manager(part, "127.0.0.1:0") as manager:
        receiver = connect(manager, credits=20)

        received = receiver.jobs(5)

        assert {broker.shards.of(job.id).name for job in received} == {"b"}
        assert set(receiver.end(received)) == {"SETTLED"}
    assert sum(count.ready for count in broker.count()) == 5
    part.close()
