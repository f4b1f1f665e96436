"""Settle and claim: the next jobs come with the answer to the last ones."""

from __future__ import annotations

import pytest

from penstock.job import State, put_back, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_worker,
    claim,
    enqueue_and_claim,
    ids_of,
    settle_and_claim_for,
    some_jobs,
)


def test_the_settled_are_answered_and_the_next_are_handed_out(broker, clock):
    """G18."""
    jobs = some_jobs(clock, 5)
    broker.enqueue(jobs)
    taken = claim(broker, limit=2)

    accepted, more = settle_and_claim_for(
        broker, [(job, succeeded()) for job in taken], a_worker(), limit=2
    )

    assert accepted == [True, True]
    assert ids_of(more) == ids_of(jobs[2:4])
    assert [job.attempt for job in more] == [1, 1]
    assert broker.get(taken[0].id).state is State.SUCCEEDED


def test_a_stale_settlement_does_not_keep_the_next_jobs_back(broker, clock):
    stale = enqueue_and_claim(broker, clock)
    broker.recover(dead="worker-1")
    clock.advance(seconds=1)

    accepted, more = settle_and_claim_for(broker, [(stale, succeeded())], a_worker("worker-2"))

    assert accepted == [False]
    assert [(job.id, job.attempt) for job in more] == [(stale.id, 2)]


def test_what_was_put_back_may_come_again_at_once(broker, clock):
    job = enqueue_and_claim(broker, clock)

    accepted, [again] = settle_and_claim_for(broker, [(job, put_back("limit"))], a_worker())

    assert accepted == [True]
    assert (again.id, again.attempt) == (job.id, 2)


def test_without_anything_to_settle_it_is_a_claim(broker, clock):
    jobs = some_jobs(clock, 2)
    broker.enqueue(jobs)

    accepted, taken = settle_and_claim_for(broker, [], a_worker(), limit=5)

    assert (accepted, ids_of(taken)) == ([], ids_of(jobs))


def test_without_anything_to_claim_it_is_a_settlement(broker, clock):
    job = enqueue_and_claim(broker, clock)

    assert settle_and_claim_for(broker, [(job, succeeded())], a_worker(), limit=0) == ([True], [])


@pytest.mark.scope(of="bucket")
def test_queues_sizes_and_rules_are_kept(broker, clock):
    mail, media = some_jobs(clock, 3, queue="mail"), some_jobs(clock, 3, queue="media")
    broker.enqueue([*mail, *media])

    _, taken = settle_and_claim_for(
        broker, [], a_worker(), queues=["media"], limit=9, sizes={"mail:send": 2}
    )
    broker.put(Rule(RuleKind.PAUSE, queue="mail"))
    _, paused = settle_and_claim_for(broker, [], a_worker(), queues=["mail"], limit=9)

    assert ids_of(taken) == ids_of(media[:2])
    assert paused == []
