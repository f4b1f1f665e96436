"""Claim for several workers in one call: each is handed what it asked for, and nothing twice."""

from __future__ import annotations

import pytest

from penstock.broker.values import Wanted
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, a_worker, ids_of, some_jobs


def test_each_is_handed_its_own_and_nothing_twice(broker, clock):
    jobs = some_jobs(clock, 7)
    broker.enqueue(jobs)

    answer = broker.claim(
        [Wanted(a_worker("one"), 2), Wanted(a_worker("two"), 3), Wanted(a_worker("three"), 9)]
    )

    assert [ids_of(handed) for handed in answer.jobs] == [
        ids_of(jobs[:2]),
        ids_of(jobs[2:5]),
        ids_of(jobs[5:]),
    ]
    assert [{job.worker for job in handed} for handed in answer.jobs] == [
        {"one"},
        {"two"},
        {"three"},
    ]
    assert answer.accepted == []
    assert {row.id: row.running for row in broker.workers()} == {"one": 2, "two": 3, "three": 2}


def test_each_is_handed_only_what_it_can_run_and_wants(broker, clock):
    mail, media = a_job(clock, queue="mail"), a_job(clock, queue="media", task="media:resize")
    broker.enqueue([mail, media])

    answer = broker.claim(
        [
            Wanted(a_worker("none"), 0),
            Wanted(a_worker("elsewhere"), 5, queues=["other"]),
            Wanted(a_worker("media", tasks={"media:resize": 1}), 5),
            Wanted(a_worker("mail"), 5),
        ]
    )

    assert [ids_of(handed) for handed in answer.jobs] == [[], [], [media.id], [mail.id]]


@pytest.mark.needs("limits across buckets")
def test_what_one_settled_may_be_handed_to_another(broker, clock):
    """A limit of one: the job that ended makes room for exactly one of the two who ask."""
    jobs = some_jobs(clock, 3)
    broker.enqueue(jobs)
    broker.put(Rule(RuleKind.LIMIT, queue="default", running=1))
    [[first]] = broker.claim([Wanted(a_worker("one"), 3)]).jobs

    answer = broker.claim(
        [Wanted(a_worker("one"), 3), Wanted(a_worker("two"), 3)], [(first, succeeded())]
    )

    assert answer.accepted == [True]
    assert sorted(len(handed) for handed in answer.jobs) == [0, 1]


def test_for_nobody_it_only_settles(broker, clock):
    [job] = some_jobs(clock, 1)
    broker.enqueue([job])
    [[held]] = broker.claim([Wanted(a_worker())]).jobs

    answer = broker.claim([], [(held, succeeded()), (held, succeeded())])

    assert (list(answer.jobs), answer.accepted) == ([], [True, False])
    assert broker.count() == []
