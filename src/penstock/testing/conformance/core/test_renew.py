"""Renew: a worker says that it is alive, and hears what became of its jobs."""

from __future__ import annotations

import pytest

from penstock.job import State, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    enqueue_and_claim,
    history_of,
    ids_of,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_a_worker_that_renews_holds_its_jobs_for_as_long_as_it_likes(broker, clock, fields):
    """D42, B6, C10: a job many times longer than the lease is run once."""
    job = enqueue_and_claim(broker, clock, **fields)

    for _ in range(30):
        clock.advance(seconds=5)
        broker.renew([a_worker()])
        assert broker.recover() == 0

    assert settle(broker, job, succeeded())


def test_one_call_renews_all_children_of_a_supervisor(broker, clock):
    broker.enqueue(some_jobs(clock, 2))
    claim(broker, worker="worker-1")
    claim(broker, worker="worker-2")
    clock.advance(seconds=10)

    broker.renew([a_worker("worker-1"), a_worker("worker-2")])
    clock.advance(seconds=10)

    assert broker.recover() == 0
    assert [row.alive for row in broker.workers()] == [True, True]


def test_a_worker_that_is_not_named_is_not_renewed(broker, clock):
    broker.renew([a_worker("worker-1"), a_worker("worker-2")])
    clock.advance(seconds=10)
    broker.renew([a_worker("worker-1")])
    clock.advance(seconds=6)

    assert {row.id: row.alive for row in broker.workers()} == {"worker-1": True, "worker-2": False}


def test_a_first_renewal_registers_the_worker(broker, clock):
    answer = broker.renew([a_worker("worker-7", queues=("mail",), tags=frozenset({"gpu"}))])

    assert (answer.lapsed, answer.cancelled) == (frozenset(), frozenset())
    [row] = broker.workers()
    assert (row.id, row.queues, row.tags, row.host, row.pid) == (
        "worker-7",
        ("mail",),
        frozenset({"gpu"}),
        "ada",
        7,
    )
    assert (row.alive, row.running, row.claimed_at) == (True, 0, None)


def test_a_renewal_keeps_the_time_of_the_last_claim(broker, clock):
    claim(broker)
    claimed_at = clock.now()
    clock.advance(seconds=5)
    broker.renew([a_worker()])

    [row] = broker.workers()

    assert row.claimed_at == claimed_at


def test_a_worker_hears_which_of_its_jobs_are_to_be_cancelled(broker, clock, fields):
    """I15: a running job is told."""
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)
    claim(broker, limit=2, worker="worker-1")
    claim(broker, limit=1, worker="worker-2")
    broker.act("cancel", ids_of(jobs[1:]))

    assert broker.renew([a_worker("worker-1")]).cancelled == {jobs[1].id}
    assert broker.renew([a_worker("worker-2")]).cancelled == {jobs[2].id}
    assert broker.renew([a_worker("worker-1"), a_worker("worker-2")]).cancelled == set(
        ids_of(jobs[1:])
    )


def test_a_job_that_was_settled_is_not_named_as_cancelled_any_more(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])
    settle(broker, job, succeeded())

    assert broker.renew([a_worker()]).cancelled == frozenset()


def test_a_worker_that_was_given_up_is_told_so(broker, clock, fields):
    """V22: SIGSTOP beyond the lease, then SIGCONT."""
    enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()

    assert broker.renew([a_worker()]).lapsed == {"worker-1"}
    assert [row.alive for row in broker.workers()] == [True]


def test_a_worker_that_was_late_but_not_given_up_goes_on(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)

    assert broker.renew([a_worker()]).lapsed == frozenset()

    assert broker.recover() == 0
    assert settle(broker, job, succeeded())


def test_jobs_that_the_worker_does_not_know_of_are_put_back_uncounted(broker, clock, fields):
    """A claim whose answer was lost strands nothing."""
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)
    [known, *lost] = claim(broker, limit=3)

    broker.renew([a_worker()], holding=[known.id])

    assert broker.get(known.id).state is State.RUNNING
    for job in lost:
        back = broker.get(job.id)
        assert (back.state, back.failures, back.lapses) == (State.READY, 0, 0)
        assert history_of(broker, job.id) == []
    assert sorted(ids_of(claim(broker, limit=5, worker="worker-2"))) == sorted(ids_of(lost))
    assert settle(broker, known, succeeded())
    assert not settle(broker, lost[0], succeeded())


def test_what_others_hold_is_not_put_back(broker, clock, fields):
    other = a_job(clock, **fields)
    broker.enqueue([other])
    [held] = claim(broker, worker="worker-2")

    broker.renew([a_worker("worker-1")], holding=[])

    assert settle(broker, held, succeeded())


def test_a_cancelled_job_that_the_worker_does_not_know_of_ends(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])

    answer = broker.renew([a_worker()], holding=[])

    assert answer.cancelled == frozenset()
    assert broker.get(job.id).state is State.CANCELLED


def test_the_lease_is_the_worker_s_own(broker, clock):
    """C26: a number per worker."""
    broker.renew([a_worker("quick", lease=2.0), a_worker("slow", lease=60.0)])
    clock.advance(seconds=3)

    assert {row.id: row.alive for row in broker.workers()} == {"quick": False, "slow": True}
