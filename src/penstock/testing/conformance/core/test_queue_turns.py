"""Turns between queues: a backlog in one does not hold up another that a worker serves as well."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.broker.values import Wanted
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    claim_for,
    ids_of,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.scope(of="bucket")


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def backlog(broker, clock, queue, count=50, **fields):
    """Jobs of one queue, stored, older than what comes next."""
    jobs = some_jobs(clock, count, queue=queue, **fields)
    broker.enqueue(jobs)
    clock.advance(seconds=1)
    return ids_of(jobs)


def queues_of(jobs):
    return Counter(job.queue for job in jobs)


def test_a_single_job_does_not_wait_for_another_queue_s_backlog(broker, clock, fields):
    """D64: whatever waits in a, and for however long, b has every second claim."""
    backlog(broker, clock, "a", **fields)
    claim(broker)
    clock.advance(minutes=30)
    single = a_job(clock, queue="b", **fields)
    broker.enqueue([single])

    assert ids_of(claim(broker)) == [single.id]


def test_a_new_worker_begins_with_the_oldest(broker, clock, fields):
    first, *_ = backlog(broker, clock, "a", **fields)
    single = a_job(clock, queue="b", **fields)
    broker.enqueue([single])

    assert [claim(broker)[0].id for _ in range(2)] == [first, single.id]


def test_claims_one_by_one_go_round_the_queues(broker, clock, fields):
    for queue in "abcd":
        backlog(broker, clock, queue, 10, **fields)

    found = [claim(broker)[0].queue for _ in range(12)]

    assert found == [*"abcd"] * 3


def test_a_claim_is_shared_between_the_queues(broker, clock, fields):
    for queue in "abc":
        backlog(broker, clock, queue, **fields)

    assert queues_of(claim(broker, limit=30)) == {"a": 10, "b": 10, "c": 10}


def test_what_one_queue_leaves_the_others_share(broker, clock, fields):
    backlog(broker, clock, "a", **fields)
    backlog(broker, clock, "b", 2, **fields)
    backlog(broker, clock, "c", **fields)

    found = queues_of(claim(broker, limit=30))

    assert found.pop("b") == 2
    assert found == {"a": 14, "c": 14}


def test_who_had_one_job_more_has_the_next_turn_last(broker, clock, fields):
    for queue in "ab":
        backlog(broker, clock, queue, **fields)

    found = [queues_of(claim(broker, limit=3)) for _ in range(4)]

    assert found == [{"a": 2, "b": 1}, {"a": 1, "b": 2}] * 2


def test_a_queue_of_several_lanes_has_one_share(broker, clock, fields):
    """Tasks and priorities of a queue share what the queue has."""
    for task in ("mail:send", "mail:sweep", "media:resize"):
        backlog(broker, clock, "a", task=task, **fields)
    backlog(broker, clock, "b", **fields)

    assert queues_of(claim(broker, limit=20)) == {"a": 10, "b": 10}


def test_within_a_queue_nothing_changes(broker, clock, fields):
    expected = {queue: backlog(broker, clock, queue, 12, **fields) for queue in "ab"}
    found = {"a": [], "b": []}
    while jobs := claim(broker, limit=5):
        for job in jobs:
            found[job.queue].append(job.id)

    assert found == expected


def test_a_higher_priority_still_goes_first(broker, clock, fields):
    backlog(broker, clock, "a", 6, **fields)
    urgent = backlog(broker, clock, "b", 6, priority=5, **fields)

    assert ids_of(claim(broker, limit=4)) == urgent[:4]
    assert queues_of(claim(broker, limit=4)) == {"a": 2, "b": 2}


def test_waiting_lets_a_low_priority_in(broker, clock, fields):
    """A step for each minute: after ten of them it has its turn, and no more than that."""
    backlog(broker, clock, "a", 20, **fields)
    backlog(broker, clock, "low", 20, priority=-10, **fields)

    assert queues_of(claim(broker, limit=4)) == {"a": 4}
    clock.advance(minutes=10)

    assert queues_of(claim(broker, limit=4)) == {"a": 2, "low": 2}


def test_a_backlog_that_waited_long_shares_with_a_higher_priority(broker, clock, fields):
    backlog(broker, clock, "a", 20, **fields)
    clock.advance(minutes=30)
    backlog(broker, clock, "urgent", 20, priority=5, **fields)

    assert queues_of(claim(broker, limit=4)) == {"a": 2, "urgent": 2}


def test_a_task_of_which_few_are_wanted_goes_round_the_queues_too(broker, clock, fields):
    for queue in "ab":
        backlog(broker, clock, queue, **fields)

    jobs = [
        job for _ in range(4) for job in claim_for(broker, a_worker(), None, 20, {"mail:send": 3})
    ]

    assert queues_of(jobs) == {"a": 6, "b": 6}


def test_a_paused_queue_has_no_share(broker, clock, fields):
    for queue in "ab":
        backlog(broker, clock, queue, **fields)
    broker.put(Rule(RuleKind.PAUSE, queue="b"))

    assert queues_of(claim(broker, limit=20)) == {"a": 20}


@pytest.mark.needs("limits across buckets")
def test_what_a_limit_keeps_back_the_others_share(broker, clock, fields):
    for queue in "abc":
        backlog(broker, clock, queue, **fields)
    broker.put(Rule(RuleKind.LIMIT, queue="c", running=2))

    assert queues_of(claim(broker, limit=20)) == {"a": 9, "b": 9, "c": 2}


def test_each_worker_has_its_own_turns(broker, clock, fields):
    """One that serves a alone takes no turn of a from one that serves both."""
    for queue in "ab":
        backlog(broker, clock, queue, **fields)

    found = []
    for _ in range(6):
        both, _ = broker.claim(
            [Wanted(a_worker("both"), 1), Wanted(a_worker("one"), 1, queues=["a"])]
        ).jobs
        found += queues_of(both)

    assert found == [*"ab"] * 3


def test_many_queues_each_have_their_turn(broker, clock):
    """More than one claim looks at in one go."""
    names = [f"queue-{number:02}" for number in range(40)]
    for name in names:
        backlog(broker, clock, name, 3)

    found = [claim(broker)[0].queue for _ in names]

    assert sorted(found) == names


def test_a_claim_with_settlements_is_shared_as_well(broker, clock):
    for queue in "ab":
        backlog(broker, clock, queue)
    jobs = claim(broker, limit=4)

    for _ in range(3):
        answer = broker.claim([Wanted(a_worker(), 4)], [(job, succeeded(b"1")) for job in jobs])
        assert answer.accepted == [True] * 4
        [jobs] = answer.jobs
        assert queues_of(jobs) == {"a": 2, "b": 2}


def test_every_job_is_handed_out_in_the_end(broker, clock, fields):
    ids = []
    for number, queue in enumerate("abcdefghijkl"):
        ids += backlog(broker, clock, queue, 3 * number, priority=number % 3, **fields)
    found = []
    while jobs := claim(broker, limit=7):
        found += ids_of(jobs)
        settle(broker, jobs[0], succeeded())

    assert sorted(found) == sorted(ids)
