"""A publication over shards is one enqueue: one job for each subscription, all or none."""

from __future__ import annotations

import contextlib

import pytest

from penstock import App
from penstock.broker.filter import Filter
from penstock.brokers.sharded.enqueuing import SENDER_SECONDS
from penstock.enqueue.subscription import Subscription
from penstock.errors import UnknownOutcome
from tests.brokers.sharded.unplugged import Killed, Unplugged, sharded
from tests.workers import drain

TASKS = 20  # whose jobs are not all in one shard


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


def subscribed(broker) -> App:
    """An app with so many subscribers of a topic, whose jobs have any bucket."""
    app = App(broker=broker)
    for number in range(TASKS):

        @app.task(name=f"shop:t{number}")
        def on_paid(order: int) -> int:
            return order

        on_paid.subscribe("order.*")
    app.topics.declare()
    return app


def jobs_in(broker) -> list[str]:
    return sorted(job.task for job in broker.find(Filter(), limit=1000).jobs)


def test_every_subscription_gets_its_job_wherever_that_is(clock, stores):
    broker = sharded(clock, *stores)
    app = subscribed(broker)

    for order in range(20):
        assert len(app.publish("order.paid", order)) == TASKS
    drain(app)

    assert jobs_in(broker) == sorted([f"shop:t{number}" for number in range(TASKS)] * 20)
    assert all(len(jobs_in(store)) > 20 for store in stores)
    assert broker.records(Subscription) == stores[0].records(Subscription)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("steps", range(8))
def test_killed_anywhere_everybody_gets_it_in_the_end_or_nobody(clock, stores, victim, steps):
    app = subscribed(sharded(clock, *stores))
    stores[victim].kill_at = steps
    with contextlib.suppress(Killed):
        app.publish("order.paid", 7)
    stores[victim].kill_at = None

    clock.advance(seconds=SENDER_SECONDS)
    after = sharded(clock, *stores)
    after.recover()

    assert len(jobs_in(after)) in {0, TASKS}


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("verb", ["put", "enqueue"])
def test_an_answer_that_is_lost_gives_nobody_two(clock, stores, victim, verb):
    broker = sharded(clock, *stores)
    app = subscribed(broker)
    stores[victim].lose = verb
    try:
        app.publish("order.paid", 7)
    except UnknownOutcome as error:
        broker.enqueue(error.jobs)
    stores[victim].lose = ""

    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()

    assert jobs_in(broker) == sorted(f"shop:t{number}" for number in range(TASKS))
