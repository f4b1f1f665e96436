"""Wait: sleep until there may be something to claim; a hint may come for nothing, never late."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.job import failed, put_back
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, enqueue_and_claim, settle

LONG = 20.0  # seconds that no test should ever need


def quiet(broker):
    """Use up the hints of what was done so far."""
    while broker.wait(None, 0.0):
        pass


def hinted_by(broker, act) -> bool:
    """Whether a thread that waits is woken by what another one does."""
    answers = []
    waiting = threading.Event()

    def listen():
        quiet(broker)
        waiting.set()
        answers.append(broker.wait(None, LONG))

    sleeper = threading.Thread(target=listen)
    sleeper.start()
    waiting.wait()
    act()
    began = time.monotonic()
    sleeper.join()
    assert time.monotonic() - began < LONG / 2
    return answers == [True]


def test_without_news_it_sleeps_until_the_timeout(broker):
    """G2: no busy loop."""
    quiet(broker)
    began = time.monotonic()

    assert broker.wait(None, 0.05) is False

    assert time.monotonic() - began >= 0.045


def test_an_enqueue_wakes_the_one_that_waits(broker, clock):
    """G2, D56: a job starts when it is pushed, not at the next look."""
    assert hinted_by(broker, lambda: broker.enqueue([a_job(clock)]))


@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100])
def test_a_job_of_any_priority_wakes_the_one_that_waits(broker, clock, priority):
    """G54: with many priorities nobody falls back on looking now and then."""
    assert hinted_by(broker, lambda: broker.enqueue([a_job(clock, priority=priority)]))


@pytest.mark.parametrize("queues", [["default"], None])
def test_what_was_enqueued_before_the_wait_is_not_missed(broker, clock, queues):
    """C14: no gap between the last look and the sleep."""
    quiet(broker)
    broker.enqueue([a_job(clock)])
    began = time.monotonic()

    assert broker.wait(queues, LONG) is True

    assert time.monotonic() - began < LONG / 2


def test_a_put_back_wakes(broker, clock):
    job = enqueue_and_claim(broker, clock)

    assert hinted_by(broker, lambda: settle(broker, job, put_back("limit")))


def test_a_put_back_that_a_claim_carries_wakes(broker, clock):
    """Others may have room for it at once, or when it is due."""
    job = enqueue_and_claim(broker, clock)
    other = WorkerRow(id="worker-2", tasks={"other:task": 1})

    assert hinted_by(
        broker, lambda: broker.claim([Wanted(other)], [(job, put_back("later", clock.now() + 9))])
    )


def test_a_recovery_wakes(broker, clock):
    enqueue_and_claim(broker, clock)

    assert hinted_by(broker, lambda: broker.recover(dead="worker-1"))


def test_a_retry_wakes(broker, clock):
    job = enqueue_and_claim(broker, clock)
    settle(broker, job, failed("x"))

    assert hinted_by(broker, lambda: broker.act("retry", [job.id]))


def test_a_rule_taken_back_wakes(broker, clock):
    """D33: what stood behind it runs at once."""
    broker.put(Rule(RuleKind.PAUSE, queue="default"))

    assert hinted_by(broker, lambda: broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="default")))
