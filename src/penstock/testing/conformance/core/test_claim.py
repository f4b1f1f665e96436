"""Claim: due jobs are handed to a worker that can run them, each to one."""

from __future__ import annotations

import pytest

from penstock.enqueue.ids import Ids, in_bucket
from penstock.job import Lane, Parcel, State, lapsed, put_back, succeeded, try_again
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    an_id,
    claim,
    claim_for,
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


def test_a_claimed_job_runs_on_the_worker_that_took_it(broker, clock, fields):
    """G9, B9: in flight, with its owner."""
    job = a_job(clock, body=b'{"args":{"n":1}}', **fields)
    broker.enqueue([job])
    clock.advance(seconds=2)

    [claimed] = claim(broker, worker="worker-7")

    assert (claimed.id, claimed.body) == (job.id, job.body)
    assert (claimed.state, claimed.attempt) == (State.RUNNING, 1)
    assert (claimed.worker, claimed.claimed_at) == ("worker-7", clock.now())
    stored = broker.get(job.id)
    assert (stored.state, stored.attempt, stored.worker) == (State.RUNNING, 1, "worker-7")
    assert stored.claimed_at == clock.now()


def test_a_job_is_handed_out_once(broker, clock, fields):
    """D16, G1, B8, B13, B44."""
    broker.enqueue([a_job(clock, **fields)])

    assert len(claim(broker, worker="worker-1")) == 1
    assert claim(broker, worker="worker-1") == []
    assert claim(broker, worker="worker-2") == []


@pytest.mark.parametrize(("limit", "handed"), [(-1, 0), (0, 0), (1, 1), (3, 3), (5, 5), (99, 5)])
def test_no_more_are_handed_out_than_asked_for(broker, clock, fields, limit, handed):
    """D9: the rest stays un-pulled."""
    jobs = some_jobs(clock, 5, **fields)
    broker.enqueue(jobs)

    taken = claim(broker, limit=limit)

    assert ids_of(taken) == ids_of(jobs[:handed])
    assert [broker.get(job.id).state for job in jobs[handed:]] == [State.READY] * (5 - handed)


@pytest.mark.scope(of="bucket")
def test_a_lane_is_first_in_first_out(broker, clock, fields):
    """G3, B43."""
    jobs = []
    for _ in range(4):
        clock.advance(seconds=1)
        jobs += some_jobs(clock, 3, **fields)
    broker.enqueue(jobs[6:])
    broker.enqueue(jobs[:6])

    assert [claim(broker)[0].id for _ in jobs] == ids_of(jobs)


@pytest.mark.needs("order across buckets")
def test_the_oldest_comes_first_whatever_its_bucket(broker, clock, fields):
    jobs = []
    for bucket in (700, 3, 512, 0):
        clock.advance(seconds=1)
        jobs.append(a_job(clock, id=in_bucket(an_id(clock), bucket), **fields))
    broker.enqueue(jobs[::-1])

    assert [claim(broker)[0].id for _ in jobs] == ids_of(jobs)


def test_a_parcel_taken_in_parts_keeps_order_and_bodies(broker, clock):
    bodies = [b'{"args":{"n":%d}}' % number for number in range(100)]
    parcel = Parcel(Ids(clock).first(), Lane("default", "mail:send"), bodies)
    broker.enqueue([parcel])

    taken = [job for limit in (1, 40, 9, 60) for job in claim(broker, limit=limit)]

    assert [(job.id, job.body) for job in taken] == list(zip(parcel.ids(), bodies, strict=True))


@pytest.mark.scope(of="bucket")
def test_a_job_put_back_stands_in_line_by_its_new_time(broker, clock):
    first = enqueue_and_claim(broker, clock)
    clock.advance(seconds=1)
    second = a_job(clock)
    broker.enqueue([second])
    clock.advance(seconds=1)
    settle(broker, first, put_back("limit"))
    clock.advance(seconds=1)
    third = a_job(clock)
    broker.enqueue([third])

    assert [claim(broker)[0].id for _ in range(3)] == [second.id, first.id, third.id]


def test_a_job_with_a_later_time_is_not_handed_out_before(broker, clock):
    """D13, B21, B44, B54, V5: not before, and then without anybody having told."""
    job = a_job(clock, run_at=clock.now() + 90)
    broker.enqueue([job])

    clock.advance(seconds=89)
    assert claim(broker) == []
    clock.advance(seconds=1)

    assert ids_of(claim(broker)) == [job.id]


def test_a_job_for_a_day_next_month_runs_on_that_day_once(broker, clock):
    """D38, D47."""
    job = a_job(clock, run_at=clock.now() + 30 * 86400)
    broker.enqueue([job])

    clock.advance(days=29)
    assert claim(broker) == []
    clock.advance(days=1)

    assert ids_of(claim(broker)) == [job.id]
    assert claim(broker) == []


def test_scheduled_jobs_do_not_stand_before_those_that_are_due(broker, clock):
    later = a_job(clock, run_at=clock.now() + 60)
    broker.enqueue([later])
    clock.advance(seconds=1)
    now = a_job(clock)
    broker.enqueue([now])

    assert ids_of(claim(broker, limit=5)) == [now.id]


def test_every_claim_raises_the_attempt(broker, clock, fields):
    """The fence: strictly higher each time."""
    attempts = []
    broker.enqueue([a_job(clock, **fields)])

    for _ in range(4):
        [job] = claim(broker)
        attempts.append(job.attempt)
        settle(broker, job, put_back("limit"))

    assert attempts == [1, 2, 3, 4]


# Which first


@pytest.mark.scope(of="bucket")
def test_the_higher_priority_goes_first(broker, clock, fields):
    """C19, G33."""
    low, high, middle = (a_job(clock, priority=p, **fields) for p in (-5, 9, 0))
    broker.enqueue([low, high, middle])

    assert [claim(broker)[0].id for _ in range(3)] == [high.id, middle.id, low.id]


@pytest.mark.scope(of="bucket")
def test_a_claim_of_many_takes_the_higher_priority_first(broker, clock, fields):
    low, high = some_jobs(clock, 3, priority=1, **fields), some_jobs(clock, 3, priority=2, **fields)
    broker.enqueue([*low, *high])

    assert set(ids_of(claim(broker, limit=4))) == {*ids_of(high), low[0].id}


@pytest.mark.scope(of="bucket")
def test_between_equals_the_lane_with_the_oldest_head_goes_first(broker, clock, fields):
    first = a_job(clock, "mail:sweep", **fields)
    clock.advance(seconds=1)
    second = a_job(clock, "mail:send", **fields)
    clock.advance(seconds=1)
    third = a_job(clock, "media:resize", **fields)
    broker.enqueue([third, second, first])

    assert [claim(broker)[0].id for _ in range(3)] == [first.id, second.id, third.id]


@pytest.mark.scope(of="bucket")
def test_a_minute_of_waiting_is_worth_a_step_of_priority(broker, clock, fields):
    """C19, D64, G33, G54: nothing waits for ever behind higher priorities."""
    old = a_job(clock, priority=0, **fields)
    broker.enqueue([old])
    clock.advance(minutes=5, seconds=-1)
    early = a_job(clock, priority=5, **fields)
    broker.enqueue([early])

    assert ids_of(claim(broker)) == [early.id]
    clock.advance(seconds=2)
    late = a_job(clock, priority=5, **fields)
    broker.enqueue([late])

    assert ids_of(claim(broker)) == [old.id]
    assert ids_of(claim(broker)) == [late.id]


def test_a_worker_of_one_queue_is_handed_nothing_of_another_s_backlog(broker, clock):
    """B26: slow and fast queues apart, however many each could take."""
    broker.enqueue(some_jobs(clock, 500, queue="slow"))
    clock.advance(seconds=1)
    quick = a_job(clock, queue="fast")
    broker.enqueue([quick])

    assert ids_of(claim_for(broker, a_worker(), ["fast"], limit=100)) == [quick.id]
    assert len(claim_for(broker, a_worker(), None, limit=100)) == 100


# To whom


def test_only_tasks_that_the_worker_knows_are_handed_out(broker, clock, fields):
    """D7, D53: an unknown task's jobs stay, and run when the task appears."""
    unknown, known = a_job(clock, "mail:forward", **fields), a_job(clock, "mail:send", **fields)
    broker.enqueue([unknown, known])

    assert ids_of(claim(broker, limit=5)) == [known.id]
    assert broker.get(unknown.id).state is State.READY
    assert ids_of(claim(broker, limit=5, tasks={"mail:forward": 1})) == [unknown.id]


@pytest.mark.parametrize(("version", "handed"), [(1, 1), (2, 1), (3, 0)])
def test_only_versions_up_to_the_worker_s_own_are_handed_out(
    broker, clock, fields, version, handed
):
    """Rolling deploys: an old worker leaves new jobs alone."""
    broker.enqueue([a_job(clock, version=version, **fields)])

    assert len(claim(broker, tasks={"mail:send": 2})) == handed


@pytest.mark.parametrize(
    ("runs_on", "tags", "handed"),
    [
        ((), (), 2),
        ((), ("gpu",), 2),
        (("gpu",), (), 0),
        (("gpu",), ("gpu",), 2),
        (("gpu", "linux"), ("gpu",), 0),
        (("gpu", "linux"), ("linux", "gpu", "large"), 2),
    ],
)
def test_a_job_that_requires_tags_goes_to_a_worker_that_has_them_all(
    broker, clock, runs_on, tags, handed
):
    """C25: default none."""
    plain, tagged = (a_job(clock, runs_on=runs_on, tags=t) for t in ({}, {"tenant": "a"}))
    broker.enqueue([plain, tagged])

    assert len(claim(broker, limit=5, tags=frozenset(tags))) == handed


def test_only_the_queues_asked_for_are_handed_out(broker, clock, fields):
    """D7, B26."""
    mail, media, other = (a_job(clock, queue=q, **fields) for q in ("mail", "media", "other"))
    broker.enqueue([mail, media, other])

    assert ids_of(claim_for(broker, a_worker(), ["mail"], 5)) == [mail.id]
    assert claim_for(broker, a_worker(), [], 5) == []
    assert set(ids_of(claim_for(broker, a_worker(), None, 5))) == {media.id, other.id}


@pytest.mark.scope(of="bucket")
def test_sizes_bound_the_number_per_task(broker, clock, fields):
    """D62: a task may want fewer at a time than there are hands."""
    send, sweep, resize = (
        some_jobs(clock, 4, task, **fields) for task in ("mail:send", "mail:sweep", "media:resize")
    )
    broker.enqueue([*send, *sweep, *resize])

    taken = claim_for(
        broker, a_worker(), None, 20, {"mail:send": 1, "mail:sweep": 0, "media:resize": 3}
    )

    assert sorted(ids_of(taken)) == sorted(ids_of([send[0], *resize[:3]]))


def test_sizes_bound_a_task_over_all_of_its_lanes(broker, clock):
    broker.enqueue([*some_jobs(clock, 3, queue="a"), *some_jobs(clock, 3, queue="b", priority=3)])

    assert len(claim_for(broker, a_worker(), None, 20, {"mail:send": 4})) == 4


def test_a_task_without_a_size_is_bound_by_the_limit_alone(broker, clock):
    broker.enqueue([*some_jobs(clock, 3), *some_jobs(clock, 3, "mail:sweep")])

    assert len(claim_for(broker, a_worker(), None, 20, {"mail:send": 1})) == 4


def test_a_claim_registers_the_worker(broker, clock):
    broker.enqueue([a_job(clock)])

    claim(broker, worker="worker-7")

    [row] = broker.workers()
    assert (row.id, row.running, row.alive, row.claimed_at) == ("worker-7", 1, True, clock.now())


def test_a_claim_keeps_the_worker_alive(broker, clock):
    job = enqueue_and_claim(broker, clock)
    for _ in range(5):
        clock.advance(seconds=10)
        claim(broker)

    assert broker.recover() == 0
    assert settle(broker, job, succeeded())


# Expiry


@pytest.mark.parametrize("delay", [None, 5])
def test_a_job_that_was_not_started_in_time_is_cancelled(broker, clock, delay):
    run_at = None if delay is None else clock.now() + delay
    job = a_job(clock, run_at=run_at, expires_at=clock.now() + 10)
    broker.enqueue([job])
    clock.advance(seconds=10)

    assert claim(broker) == []

    broker.recover()
    ended = broker.get(job.id)
    assert (ended.state, ended.reason) == (State.CANCELLED, "expired")
    [event] = history_of(broker, job.id)
    assert (event.kind, event.state, event.reason) == ("cancel", State.CANCELLED, "expired")


def test_a_job_that_was_started_in_time_does_not_expire(broker, clock):
    job = enqueue_and_claim(broker, clock, expires_at=clock.now() + 10)
    clock.advance(seconds=11)
    broker.recover(dead="nobody")

    assert broker.get(job.id).state is State.RUNNING
    assert settle(broker, job, succeeded())


def test_an_expired_job_does_not_keep_others_back(broker, clock):
    gone = some_jobs(clock, 3, expires_at=clock.now() + 10)
    good = a_job(clock, expires_at=clock.now() + 100)
    broker.enqueue([*gone, good])
    clock.advance(seconds=11)

    assert ids_of(claim(broker)) == [good.id]


# After trouble


def test_a_job_that_is_tried_again_waits_for_its_time(broker, clock, fields):
    """D24, B24: the second run at the delay, not before."""
    broker.enqueue([a_job(clock, **fields)])
    [job] = claim(broker)
    settle(broker, job, try_again("boom", clock.now() + 300))

    clock.advance(seconds=299)
    assert claim(broker) == []
    clock.advance(seconds=1)

    [again] = claim(broker)
    assert (again.id, again.attempt, again.failures) == (job.id, 2, 1)


def test_a_lapsed_job_is_handed_out_again_beside_others(broker, clock):
    first = enqueue_and_claim(broker, clock)
    settle(broker, first, lapsed())
    clock.advance(seconds=1)
    others = some_jobs(clock, 3)
    broker.enqueue(others)

    taken = claim(broker, limit=10)

    assert sorted(ids_of(taken)) == sorted([first.id, *ids_of(others)])
    assert broker.settle([(job, succeeded()) for job in taken]) == [True] * 4


def test_a_wall_clock_set_back_does_not_keep_plain_jobs(broker, clock: Clock):
    """Clock jumps: what is due at once stays due at once."""
    job = a_job(clock)
    broker.enqueue([job])
    clock.jump(-3600)

    assert ids_of(claim(broker)) == [job.id]
