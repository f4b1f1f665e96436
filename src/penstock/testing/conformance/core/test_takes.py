"""Takes: a claim and its lease are one step, and what becomes of those who hold it too long.

Where Guild, Vitess and Dark had two steps, or a list to go through. Runs against every broker.
"""

from __future__ import annotations

import re

import pytest

from penstock.job import Parcel, State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    an_id,
    begun,
    claim,
    enqueue_and_claim,
    ids_of,
    part,
    settle,
    some_jobs,
)
from penstock.worker.upkeep import Upkeep


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_each_stored_job_is_offered_once(broker, clock, fields):
    """D39: as many can be taken as are stored, without a resume and after nine enqueues alike."""
    jobs = some_jobs(clock, 20, **fields)
    for _ in range(9):
        broker.enqueue(jobs)

    taken = ids_of(claim(broker, 100))

    assert sorted(taken) == sorted(ids_of(jobs))
    assert claim(broker, 100) == []


def test_jobs_of_the_same_moment_are_all_taken(broker, clock, fields):
    """V11: a time is no key; two that are due at the same instant are two jobs."""
    moment = clock.now() + 60
    jobs = [a_job(clock, run_at=moment, **fields) for _ in range(2)]
    for job in jobs:
        broker.enqueue([job])
    clock.advance(seconds=60)

    assert sorted(ids_of(claim(broker, 10))) == sorted(ids_of(jobs))


def test_what_was_just_taken_is_not_given_up(broker, clock, fields):
    """G46: the job and its lease come together, so that nobody finds one without the other."""
    broker.enqueue(some_jobs(clock, 3, **fields))
    taken = claim(broker, 3)

    assert broker.recover() == 0
    broker.renew([a_worker("keeper")])
    assert broker.recover(by="keeper") == 0

    assert broker.settle([(job, succeeded()) for job in taken]) == [True] * 3


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_whoever_ends_at_the_deadline_has_ended_and_did_not_fail(broker, clock, fields, late):
    """G44: a lease of any length; until it is taken back, the end of its holder counts."""
    broker.enqueue([a_job(clock, **fields)])
    [job] = claim(broker, lease=180.0)
    clock.advance(seconds=180 + late)

    assert settle(broker, job, begun(succeeded(b"1"), clock.now()))
    assert broker.recover() == 0

    attempts = [event for event in broker.history(job=job.id) if event.kind == "attempt"]
    assert [(event.state, event.lapses) for event in attempts] == [(State.SUCCEEDED, 0)]


def test_the_last_end_of_a_flow_by_one_who_lost_it_is_refused(broker, clock, fields):
    """G48: the verdict is the same where nothing follows."""
    flow = a_flow(clock, first=part(**fields), last=part("first", **fields))
    flow.send(broker)
    assert broker.settle([(job, succeeded()) for job in claim(broker)]) == [True]
    [late] = claim(broker)
    clock.advance(seconds=16)
    assert broker.recover() == 1
    [current] = claim(broker, worker="worker-2")

    assert not settle(broker, late, failed("too late"))
    assert broker.flow(flow.flow.id).ended_at is None
    assert settle(broker, current, succeeded())

    assert broker.flow(flow.flow.id).ended_at == clock.now()
    assert flow.states(broker, "last") == [State.SUCCEEDED]


def test_ten_thousand_that_are_stuck_do_not_stand_before_a_new_one(broker, clock):
    """V27: what is old and unsettled is looked after apart, and comes back all the same."""
    lane = a_job(clock).lane
    broker.enqueue([Parcel(an_id(clock), lane, [b"{}"] * 1000) for _ in range(10)])
    assert len(claim(broker, 10_000)) == 10_000
    clock.advance(seconds=16)  # nobody settles, and nobody has recovered them yet
    new = a_job(clock)
    broker.enqueue([new])

    assert ids_of(claim(broker, 10, worker="worker-2")) == [new.id]
    broker.renew([a_worker("worker-2")])

    assert broker.recover(dead="worker-1") == 10_000
    assert [count.ready for count in broker.count()] == [10_000]


@pytest.mark.scope(of="bucket")
def test_a_job_knows_its_place_in_the_line(broker, clock, fields):
    """G59: how many are ahead of it, as long as they are."""
    jobs = some_jobs(clock, 5, **fields)
    broker.enqueue(jobs)
    broker.renew([a_worker()])
    ahead = [_ahead(broker.why(job.id).sentence) for job in jobs]
    numbers = [broker.why(job.id).ahead for job in jobs]

    taken = claim(broker, 2)

    assert ahead == numbers == [0, 1, 2, 3, 4]
    assert broker.why(taken[0].id).ahead is None
    assert ids_of(taken) == ids_of(jobs[:2])
    assert [_ahead(broker.why(job.id).sentence) for job in jobs[2:]] == [0, 1, 2]


def _ahead(sentence: str) -> int:
    found = re.match(r"It is ready: (\d+) jobs? of its lane", sentence)
    return int(found[1]) if found else 0


def test_chores_done_by_two_at_once_are_done_once(broker, clock):
    """G59, G60: there is no monitor; whoever looks after the store may meet another who does."""
    enqueue_and_claim(broker, clock)
    keepers = [a_worker("keeper-1"), a_worker("keeper-2")]
    broker.renew(keepers)
    upkeeps = [Upkeep(broker, clock, keeper.id) for keeper in keepers]

    recovered = []
    for _ in range(6):
        clock.advance(seconds=5)
        broker.renew(keepers)
        recovered += [upkeep.run_due() for upkeep in upkeeps]

    assert sum(recovered) == 1
    [job] = claim(broker)
    assert (job.attempt, job.lapses) == (2, 1)
