"""Recover: what dead workers held is made ready again; what had begun counts a lapse."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.job import Job, State, put_back, succeeded
from penstock.testing.clock import Clock
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


def test_a_job_whose_worker_fell_silent_runs_again(broker, clock, fields):
    """D14, D22, V2, G10, B5: at least once, and the lapse is counted."""
    job = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)

    assert broker.recover() == 1

    [again] = claim(broker, worker="worker-2")
    assert (again.id, again.attempt, again.lapses, again.failures) == (job.id, 2, 1, 0)
    assert broker.recover() == 0


def test_a_worker_within_its_lease_is_left_alone(broker, clock, fields):
    """D14: fresh lock, no run."""
    job = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=14)

    assert broker.recover() == 0

    assert settle(broker, job, succeeded())


def test_a_worker_whose_lease_lapsed_cannot_settle(broker, clock, fields):
    """V22, G47: the stale settlement is refused."""
    late = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()
    [current] = claim(broker, worker="worker-2")

    assert broker.settle([(late, succeeded(b"1"))]) == [False]
    assert broker.settle([(current, succeeded(b"2"))]) == [True]
    assert broker.get(late.id).result == b"2"


def test_a_worker_that_only_fell_silent_may_settle_until_it_is_given_up(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)

    assert settle(broker, job, succeeded())
    assert broker.recover() == 0


def test_only_what_was_not_settled_is_made_ready(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 4, **fields))
    taken = claim(broker, limit=4)
    broker.settle([(job, succeeded()) for job in taken[1:3]])
    clock.advance(seconds=16)

    assert broker.recover() == 2

    assert sorted(ids_of(claim(broker, 5, "worker-2"))) == sorted([taken[0].id, taken[3].id])


def test_the_lapse_is_in_the_history(broker, clock, fields):
    """I13."""
    job = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()

    [event] = history_of(broker, job.id)

    assert (event.kind, event.attempt, event.state, event.worker) == (
        "attempt",
        1,
        State.READY,
        "worker-1",
    )
    assert event.reason == "crashed"


def test_a_job_that_takes_every_worker_with_it_ends(broker, clock, fields):
    """D27: N deliveries, then failed."""
    job = a_job(clock, **fields)
    broker.enqueue([job])
    for number in (1, 2, 3):
        assert ids_of(claim(broker, worker=f"worker-{number}")) == [job.id]
        clock.advance(seconds=16)
        broker.recover()
        clock.advance(seconds=10)

    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.lapses) == (State.FAILED, "crashed", 3)
    assert claim(broker) == []


def test_a_job_whose_workers_fall_silent_waits_longer_each_time(broker, clock, fields):
    """V24, D27, D28: the delays grow, and the body says when it is over; no worker's help."""
    job = a_job(clock, body=b'{"args":{},"crash_budget":6}', **fields)
    broker.enqueue([job])
    delays: list[float] = []
    for number in range(5):
        assert ids_of(claim(broker, worker=f"worker-{number}")) == [job.id]
        clock.advance(seconds=16)
        assert broker.recover() == 1
        waiting = broker.get(job.id)
        delays.append(waiting.run_at - clock.now())
        if delays[-1] > 0:
            clock.advance(seconds=delays[-1] - 0.01)
            assert claim(broker, worker="worker-early") == []
            clock.advance(seconds=0.02)

    assert [round(delay, 3) for delay in delays] == [0, 1, 2, 4, 8]
    claim(broker, worker="worker-last")
    clock.advance(seconds=16)
    broker.recover()
    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.lapses) == (State.FAILED, "crashed", 6)


def test_a_crash_budget_of_one_ends_the_job_with_its_first_lapse(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, body=b'{"args":{},"crash_budget":1}', **fields)
    clock.advance(seconds=16)

    broker.recover()

    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.lapses) == (State.FAILED, "crashed", 1)


def test_an_at_most_once_job_is_lost_with_its_worker(broker, clock):
    """C3."""
    job = enqueue_and_claim(broker, clock, at_most_once=True)
    clock.advance(seconds=16)

    broker.recover()

    ended = broker.get(job.id)
    assert (ended.state, ended.reason) == (State.FAILED, "lost")


def test_a_cancelled_job_ends_with_its_worker(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])
    clock.advance(seconds=16)

    broker.recover()

    assert broker.get(job.id).state is State.CANCELLED
    assert claim(broker, worker="worker-2") == []


def test_a_wall_clock_that_jumps_ends_no_lease(broker, clock: Clock, fields):
    """I5: leases hold when somebody sets the clock."""
    job = enqueue_and_claim(broker, clock, **fields)

    clock.jump(86400)
    assert broker.recover() == 0
    clock.jump(-2 * 86400)
    assert broker.recover() == 0

    assert settle(broker, job, succeeded())


# Who may say so


def test_a_worker_that_was_alive_throughout_gives_up_the_others(broker, clock):
    """C1: any worker may do the upkeep."""
    broker.renew([a_worker("worker-2")])
    enqueue_and_claim(broker, clock)
    for _ in range(2):
        clock.advance(seconds=8)
        broker.renew([a_worker("worker-2")])

    assert broker.recover(by="worker-2") == 1


def test_the_first_one_back_after_an_outage_does_not_give_up_everybody_else(broker, clock):
    """A store that nobody could reach for a minute: all leases ran out, nobody is dead."""
    broker.renew([a_worker("worker-2")])
    job = enqueue_and_claim(broker, clock)
    clock.advance(minutes=1)
    broker.renew([a_worker("worker-2")])

    assert broker.recover(by="worker-2") == 0

    clock.advance(seconds=1)
    broker.renew([a_worker("worker-1")])
    assert settle(broker, job, succeeded())


def test_once_it_has_been_back_for_a_lease_it_does(broker, clock):
    broker.renew([a_worker("worker-2")])
    enqueue_and_claim(broker, clock)
    clock.advance(minutes=1)
    for _ in range(4):
        broker.renew([a_worker("worker-2")])
        clock.advance(seconds=5)

    assert broker.recover(by="worker-2") == 1


@pytest.mark.parametrize("by", ["worker-1", "nobody"])
def test_a_lapsed_or_unknown_worker_gives_up_nobody(broker, clock, by):
    enqueue_and_claim(broker, clock)
    clock.advance(seconds=16)

    assert broker.recover(by=by) == 0
    assert broker.recover() == 1


def test_a_claim_renews_the_trust_in_a_worker(broker, clock):
    enqueue_and_claim(broker, clock)
    for _ in range(4):
        claim(broker, worker="worker-2")
        clock.advance(seconds=5)

    assert broker.recover(by="worker-2") == 1


# Known to be gone


def test_a_worker_known_to_be_dead_is_given_up_at_once(broker, clock, fields):
    """D22, B14: the supervisor saw its child die."""
    jobs = some_jobs(clock, 2, **fields)
    broker.enqueue(jobs)
    claim(broker, limit=2)

    assert broker.recover(dead="worker-1") == 2

    assert [(job.id, job.lapses) for job in claim(broker, 5, "worker-2")] == [
        (job.id, 1) for job in jobs
    ]
    assert [row.id for row in broker.workers()] == ["worker-2"]


def test_jobs_that_had_not_begun_are_put_back_uncounted(broker, clock, fields):
    """A poison job among its neighbours: only the one that began counts the crash."""
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)
    claim(broker, limit=3)

    assert broker.recover(dead="worker-1", started=[jobs[1].id]) == 3

    assert [broker.get(job.id).lapses for job in jobs] == [0, 1, 0]
    assert [broker.get(job.id).state for job in jobs] == [State.READY] * 3
    assert [len(history_of(broker, job.id)) for job in jobs] == [0, 1, 0]


def test_a_worker_that_had_begun_nothing_costs_nothing(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, at_most_once=True, **fields)

    assert broker.recover(dead="worker-1", started=[]) == 1

    assert [again.id for again in claim(broker, worker="worker-2")] == [job.id]


def test_nobody_else_is_touched(broker, clock, fields):
    first = enqueue_and_claim(broker, clock, **fields)
    other = a_job(clock, **fields)
    broker.enqueue([other])
    [held] = claim(broker, worker="worker-2")

    assert broker.recover(dead="worker-1") == 1

    assert settle(broker, held, succeeded())
    assert not settle(broker, first, succeeded())


def test_an_unknown_dead_worker_is_no_error(broker):
    assert broker.recover(dead="nobody") == 0
    assert broker.recover(dead="nobody", started=["x"]) == 0


def test_a_worker_that_was_given_up_may_work_again(broker, clock, fields):
    enqueue_and_claim(broker, clock, **fields)
    broker.recover(dead="worker-1")

    [again] = claim(broker, worker="worker-1")

    assert (again.attempt, settle(broker, again, succeeded())) == (2, True)


def test_recovering_an_empty_store_is_fine(broker):
    assert broker.recover() == 0


def test_undone_claims_keep_their_place_and_the_attempt_goes_on(broker, clock, fields):
    """What had not begun is as if it had not been claimed, but for its fence."""
    jobs = some_jobs(clock, 4, **fields)
    broker.enqueue(jobs)
    stale = claim(broker, limit=2)

    broker.recover(dead="worker-1", started=[])

    assert [(broker.get(job.id).attempt, broker.get(job.id).state) for job in jobs] == [
        *[(1, State.READY)] * 2,
        *[(0, State.READY)] * 2,
    ]
    again = [each for _ in range(2) for each in claim(broker, 4, "worker-2")]
    assert ids_of(again) == ids_of(jobs)
    assert [job.attempt for job in again] == [2, 2, 1, 1]
    assert broker.settle([(job, succeeded()) for job in stale]) == [False, False]
    assert broker.settle([(job, succeeded()) for job in again]) == [True] * 4
    assert [history_of(broker, job.id)[-1].attempt for job in jobs] == [2, 2, 1, 1]


def test_jobs_whose_claims_were_undone_can_be_cancelled(broker, clock, fields):
    jobs = some_jobs(clock, 5, **fields)
    broker.enqueue(jobs)
    claim(broker, limit=5)
    broker.recover(dead="worker-1", started=[])

    assert broker.act("cancel", [jobs[2].id]) == [jobs[2].id]

    assert broker.get(jobs[2].id).state is State.CANCELLED
    again = claim(broker, 5, "worker-2")
    assert [(job.id, job.attempt) for job in again] == [
        (job.id, 2) for job in jobs if job.id != jobs[2].id
    ]


def test_a_job_that_was_to_be_cancelled_is_not_ready_again(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])

    broker.recover(dead="worker-1", started=[])

    assert broker.get(job.id).state is State.CANCELLED


# Nobody saw it die


def silent(broker, clock, worker: str = "worker-1", began: tuple[str, ...] = ()) -> int:
    """The worker renews once more, naming what has begun, and then falls silent."""
    broker.renew([a_worker(worker, began=began)])
    clock.advance(seconds=16)
    return broker.recover()


def test_what_the_last_renewal_named_as_begun_counts_a_lapse_and_nothing_else(
    broker, clock, fields
):
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)
    claim(broker, limit=3, began=())

    assert silent(broker, clock, began=(jobs[1].id,)) == 3

    assert [broker.get(job.id).lapses for job in jobs] == [0, 1, 0]
    assert [broker.get(job.id).state for job in jobs] == [State.READY] * 3
    assert [len(history_of(broker, job.id)) for job in jobs] == [0, 1, 0]


def test_the_third_time_in_a_row_counts_a_lapse(broker, clock, fields):
    """A job that kills its process before any renewal names it must not do so for ever."""
    job = a_job(clock, **fields)
    broker.enqueue([job])

    lapses = []
    for _ in range(4):
        claim(broker, began=())
        silent(broker, clock)
        lapses.append(broker.get(job.id).lapses)

    assert lapses == [0, 0, 1, 1]
    assert [event.attempt for event in history_of(broker, job.id)] == [3]


def test_any_other_outcome_begins_the_count_anew(broker, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])

    for _ in range(3):
        claim(broker, began=())
        silent(broker, clock)
        [again] = claim(broker, began=())
        settle(broker, again, put_back("shutdown"))

    assert broker.get(job.id).lapses == 0


def test_an_at_most_once_job_that_nobody_named_is_lost_all_the_same(broker, clock, fields):
    """It may have begun since the last renewal, and must not begin twice."""
    job = a_job(clock, at_most_once=True, **fields)
    broker.enqueue([job])
    claim(broker, began=())

    assert silent(broker, clock) == 1

    assert (broker.get(job.id).state, broker.get(job.id).reason) == (State.FAILED, "lost")


@pytest.mark.scope(of="bucket")
def test_suspects_are_handed_out_together_and_at_most_128_at_a_time(broker, clock, fields):
    """The one that kills its process takes no more than these along."""
    jobs = some_jobs(clock, 300, **fields)
    broker.enqueue(jobs)
    assert len(claim(broker, 300, began=())) == 300
    assert silent(broker, clock) == 300

    again: list[Job[Any]] = []
    while taken := claim(broker, 300, "worker-2", began=()):
        assert len(taken) <= 128
        assert again or len(taken) > 1
        again += taken

    assert ids_of(again) == ids_of(jobs)
    assert {job.lapses for job in again} == {0}
    assert broker.settle([(job, succeeded()) for job in again]) == [True] * 300


def test_suspects_of_several_lanes_are_handed_out_at_most_128_at_a_time(broker, clock, fields):
    jobs = [*some_jobs(clock, 100, **fields), *some_jobs(clock, 100, priority=1, **fields)]
    broker.enqueue(jobs)
    assert len(claim(broker, 200, began=())) == 200
    assert silent(broker, clock) == 200

    again: list[Job[Any]] = []
    while taken := claim(broker, 200, "worker-2", began=()):
        assert len(taken) <= 128
        again += taken

    assert sorted(ids_of(again)) == sorted(ids_of(jobs))
