"""Relaxed queues: the same life, without waiting for the disk."""

from __future__ import annotations

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim_for,
    ids_of,
    settle,
    settle_and_claim_for,
    some_jobs,
)


def test_jobs_of_a_relaxed_queue_live_as_others_do(broker, clock):
    broker.traits.relaxed = frozenset({"clicks"})
    jobs = some_jobs(clock, 5, queue="clicks")
    keyed = a_job(clock, queue="clicks", key="ada")
    broker.enqueue([*jobs, keyed])

    claimed = claim_for(broker, a_worker(), limit=10)

    assert sorted(ids_of(claimed)) == sorted(ids_of([*jobs, keyed]))
    accepted, _ = settle_and_claim_for(
        broker, [(job, succeeded()) for job in claimed[:-1]], a_worker()
    )
    assert accepted == [True] * 5
    assert settle(broker, claimed[-1], failed("no"))
    assert broker.get(claimed[0].id).state is State.SUCCEEDED
    assert broker.get(claimed[-1].id).state is State.FAILED


def test_a_relaxed_queue_beside_others(broker, clock):
    broker.traits.relaxed = frozenset({"clicks"})
    jobs = [*some_jobs(clock, 2, queue="clicks"), *some_jobs(clock, 2, queue="mail")]
    broker.enqueue(jobs)
    claimed = claim_for(broker, a_worker(), limit=4)

    assert broker.settle([(job, succeeded()) for job in claimed]) == [True] * 4
    assert sum(count.total for count in broker.count()) == 0


def test_an_at_most_once_job_of_a_relaxed_queue_is_handed_out_once(broker, clock):
    broker.traits.relaxed = frozenset({"clicks"})
    first = a_job(clock, queue="clicks")
    broker.enqueue([first])
    [held] = claim_for(broker, a_worker())
    once = a_job(clock, queue="clicks", at_most_once=True)
    broker.enqueue([once])

    _, [taken] = settle_and_claim_for(broker, [(held, succeeded())], a_worker())

    assert taken.id == once.id
    assert claim_for(broker, a_worker("worker-2")) == []
