"""The line to a manager is cut: what was sent is stored once, or the caller is told."""

from __future__ import annotations

import pytest

from penstock.broker.values import Wanted
from penstock.brokers import open_broker
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_job, a_worker, claim, enqueue_and_claim
from tests.stories.proxy import Proxy


@pytest.fixture
def proxy(manager):
    with Proxy(manager.url) as proxy:
        yield proxy


@pytest.fixture
def cut_off(proxy, clock):
    """A client behind a line that can be cut."""
    broker = open_broker(proxy.url.replace("//@", "//"), clock)
    yield broker
    broker.close()


def cut(proxy: Proxy, word: str, where: str, times: int = 1) -> None:
    """Cut the line at the next messages in which this is said."""
    left = times

    def decide(data: bytes):
        nonlocal left
        if word.encode() not in data or not left:
            return None
        left -= 1
        return where

    proxy._chance = decide


@pytest.mark.parametrize("where", ["before", "after"])
def test_one_lost_answer_of_an_enqueue_is_not_seen(cut_off, proxy, memory_broker, clock, where):
    job = a_job(clock)
    cut(proxy, job.id, where)

    cut_off.enqueue([job])

    assert proxy.cuts == 1
    assert len(claim(memory_broker, limit=9)) == 1


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_second_lost_answer_is_told_with_the_jobs(cut_off, proxy, memory_broker, clock, where):
    job = a_job(clock)
    cut(proxy, job.id, where, times=2)

    with pytest.raises(UnknownOutcome, match="Sending them again is safe") as unknown:
        cut_off.enqueue([job])

    assert unknown.value.jobs == [job]
    proxy.heal()
    cut_off.enqueue(unknown.value.jobs)
    assert len(claim(memory_broker, limit=9)) == 1


def test_a_settlement_whose_answer_is_lost_is_not_sent_twice_unasked(
    cut_off, proxy, memory_broker, clock
):
    """The worker sends it again, and hears that it was applied or is stale."""
    job = enqueue_and_claim(cut_off, clock)
    cut(proxy, job.id, "after")

    with pytest.raises(StoreUnreachable):
        cut_off.settle([(job, succeeded(b"1"))])

    assert proxy.cuts == 1
    [applied] = cut_off.settle([(job, succeeded(b"2"))])
    [attempt] = [event for event in memory_broker.history() if event.kind == "attempt"]
    assert attempt.result == (b"2" if applied else b"1")


def test_a_claim_whose_answer_is_lost_strands_nothing(cut_off, proxy, memory_broker, clock):
    job = a_job(clock)
    cut_off.enqueue([job])
    worker = a_worker("worker-of-the-cut-line")
    cut(proxy, worker.id, "after")
    with pytest.raises(StoreUnreachable):
        cut_off.claim([Wanted(worker)])

    cut_off.renew([worker], holding=())

    [again] = claim(memory_broker)
    assert (again.id, again.lapses) == (job.id, 0)


def test_a_manager_that_is_silent_does_not_hold_a_caller_for_ever(cut_off, proxy, monkeypatch):
    monkeypatch.setattr("penstock.brokers.remote.broker.CALL_SECONDS", 0.2)
    proxy.black_hole()

    with pytest.raises(StoreUnreachable):
        cut_off.count()
