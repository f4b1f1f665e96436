"""Lost answers, lost scripts and others who change the same jobs."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job, State, succeeded
from penstock.rules.rule import Rule, RuleKind

WORKER = WorkerRow(id="w", tasks={"t": 1})


@pytest.fixture
def broker(own_redis):
    broker = open_broker(own_redis.url())
    yield broker
    broker.close()


def test_a_frozen_server_leaves_an_unknown_outcome_and_sending_again_is_safe(broker, own_redis):
    jobs = [Job(task="t") for _ in range(3)]
    broker.enqueue([Job(task="t", queue="other")])
    broker.server.call_seconds = 0.5
    own_redis.freeze()
    try:
        with pytest.raises(UnknownOutcome) as caught:
            broker.enqueue(jobs)
    finally:
        own_redis.thaw()

    assert caught.value.jobs == jobs
    broker.server.call_seconds = 30.0
    broker.enqueue(jobs)
    assert sum(count.ready for count in broker.count() if count.queue == "default") == 3


def test_a_server_that_is_away_is_said_to_be_unreachable(broker, own_redis):
    own_redis.kill()

    with pytest.raises(StoreUnreachable, match="does not answer"):
        broker.get(Job(task="t").id)
    with pytest.raises(StoreUnreachable):
        broker.claim([Wanted(WORKER, 1)])
    assert broker.traits.rules_version() == 0  # what runs goes on


def test_scripts_that_the_server_forgot_are_sent_again(broker, own_redis):
    broker.enqueue([Job(task="t")])
    own_redis.command("SCRIPT", "FLUSH")

    [[job]] = broker.claim([Wanted(WORKER, 1)]).jobs
    own_redis.command("SCRIPT", "FLUSH")

    assert broker.settle([(job, succeeded())]) == [True]
    assert broker.get(job.id).state is State.SUCCEEDED


def test_a_lock_that_was_left_behind_ends_by_itself(broker, own_redis):
    job = Job(task="t")
    broker.enqueue([job])
    own_redis.command("SET", f"{broker.server.prefix}lock", "somebody", "PX", 300)

    assert broker.act("cancel", [job.id]) == [job.id]


def test_a_lock_holds_back_claims_and_ends(broker, own_redis):
    broker.enqueue([Job(task="t")])
    began = time.monotonic()
    own_redis.command("SET", f"{broker.server.prefix}lock", "somebody", "PX", 300)

    [[job]] = broker.claim([Wanted(WORKER, 1)]).jobs

    assert job.attempt == 1
    assert time.monotonic() > began


def test_a_pause_that_returned_lets_nothing_start_elsewhere(broker, own_redis):
    other = open_broker(own_redis.url())
    before = other.traits.rules_version()

    broker.put(Rule(RuleKind.PAUSE, queue="default"))

    assert other.traits.rules_version() != before
    other.close()


def test_a_wait_in_another_process_ends_with_an_enqueue(broker, own_redis):
    other = open_broker(own_redis.url())
    while other.wait(None, 0.0):
        pass
    answers = []
    waits = threading.Thread(target=lambda: answers.append(other.wait(None, 20.0)))
    waits.start()

    broker.enqueue([Job(task="t")])

    waits.join(20.0)
    other.close()
    assert answers == [True]
