"""Settle: an attempt ends, and the job moves on, if that attempt still holds it."""

from __future__ import annotations

import json

import pytest

from penstock.job import (
    CRASH_BUDGET,
    Outcome,
    State,
    failed,
    lapsed,
    put_back,
    succeeded,
    try_again,
)
from penstock.testing.conformance.factories import (
    a_job,
    begun,
    claim,
    enqueue_and_claim,
    history_of,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_a_job_that_succeeded_is_kept_with_its_result(broker, clock, fields):
    """G7, B16, B28, C5."""
    job = enqueue_and_claim(broker, clock, body=b'{"args":{"n":1}}', **fields)
    clock.advance(seconds=3)

    assert settle(broker, job, succeeded(b'{"sent":true}'))

    ended = broker.get(job.id)
    assert (ended.state, ended.result, ended.body) == (
        State.SUCCEEDED,
        b'{"sent":true}',
        b'{"args":{"n":1}}',
    )
    assert ended.ended_at == clock.now()
    assert claim(broker) == []


def test_a_job_that_is_not_to_be_kept_is_gone(broker, clock, fields):
    """D21, B16: only the row of its attempt stays, without arguments and result."""
    job = enqueue_and_claim(broker, clock, **fields)

    assert settle(broker, job, Outcome(State.SUCCEEDED, result=b"1", keep=False))

    assert broker.get(job.id) is None
    assert broker.count() == []
    [event] = history_of(broker, job.id)
    assert (event.kind, event.state) == ("attempt", State.SUCCEEDED)
    assert (event.body, event.result) == (None, None)


def test_a_job_that_failed_is_kept_with_its_reason_and_error(broker, clock, fields):
    """D52, D55, B18: listed with reason."""
    job = enqueue_and_claim(broker, clock, body=b'{"args":{"n":1}}', **fields)
    clock.advance(seconds=3)

    assert settle(broker, job, failed("Traceback: boom", "error"))

    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.error) == (State.FAILED, "error", "Traceback: boom")
    assert (ended.failures, ended.ended_at) == (1, clock.now())
    assert ended.body == b'{"args":{"n":1}}'
    assert claim(broker) == []


def test_a_failed_job_that_is_not_to_be_kept_is_gone(broker, clock, fields):
    """D25, B17: deleted when no retry is left."""
    job = enqueue_and_claim(broker, clock, **fields)

    settle(broker, job, Outcome(State.FAILED, "error", error="boom", failures=1, keep=False))

    assert broker.get(job.id) is None
    [event] = history_of(broker, job.id)
    assert (event.state, event.reason, event.error, event.body) == (
        State.FAILED,
        "error",
        "boom",
        None,
    )


def test_a_job_to_be_tried_again_is_ready_for_its_time_and_counts_the_failure(
    broker, clock, fields
):
    """D24, D48: the lock goes with the failure."""
    job = enqueue_and_claim(broker, clock, **fields)

    settle(broker, job, try_again("boom", clock.now() + 300))

    again = broker.get(job.id)
    assert (again.state, again.run_at) == (State.READY, clock.now() + 300)
    assert (again.attempt, again.failures, again.lapses, again.repeats) == (1, 1, 0, 0)
    assert (again.reason, again.error) == ("error", "boom")
    assert again.worker is None


def test_the_time_a_job_was_enqueued_never_changes(broker, clock, fields):
    """D6."""
    job = enqueue_and_claim(broker, clock, **fields)
    made_at = job.enqueued_at
    for _ in range(3):
        clock.advance(seconds=60)
        settle(broker, job, try_again("boom", clock.now()))
        [job] = claim(broker)

    assert job.enqueued_at == made_at
    assert broker.get(job.id).enqueued_at == made_at


def test_a_put_back_counts_as_nothing_however_often(broker, clock, fields):
    """D29, D46, C8: a hundred put-backs, and the job still runs."""
    job = enqueue_and_claim(broker, clock, **fields)

    for _ in range(100):
        assert settle(broker, job, put_back("limit"))
        [job] = claim(broker)

    assert (job.failures, job.lapses, job.repeats, job.attempt) == (0, 0, 0, 101)
    assert history_of(broker, job.id) == []
    assert settle(broker, job, succeeded())


def test_a_put_back_without_a_time_is_due_at_once(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    settle(broker, job, put_back("shutdown"))

    assert broker.get(job.id).run_at == clock.now()
    assert broker.get(job.id).reason == "shutdown"
    assert [again.id for again in claim(broker)] == [job.id]


def test_a_put_back_with_a_time_waits_for_it(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    settle(broker, job, put_back("later", clock.now() + 30))

    assert claim(broker) == []
    clock.advance(seconds=30)
    assert len(claim(broker)) == 1


def test_repeats_are_counted_apart(broker, clock, fields):
    """B17, B19, B22."""
    job = enqueue_and_claim(broker, clock, **fields)

    settle(broker, job, Outcome(State.READY, "repeat", run_at=clock.now(), repeats=1))

    [again] = claim(broker)
    assert (again.repeats, again.failures, again.lapses) == (1, 0, 0)


def test_counters_add_up_over_attempts(broker, clock, fields):
    """C8: three counters."""
    job = enqueue_and_claim(broker, clock, **fields)
    for outcome in (
        try_again("a", clock.now()),
        lapsed(),
        Outcome(State.READY, run_at=clock.now(), repeats=1),
        try_again("b", clock.now()),
    ):
        settle(broker, job, outcome)
        [job] = claim(broker)

    assert (job.failures, job.lapses, job.repeats, job.attempt) == (2, 1, 1, 5)


# The fence


def test_a_second_settlement_is_refused(broker, clock, fields):
    """D35, C3: one settlement per job."""
    job = enqueue_and_claim(broker, clock, **fields)

    assert settle(broker, job, succeeded(b"1"))
    assert not settle(broker, job, failed("late"))

    assert broker.get(job.id).state is State.SUCCEEDED
    assert len(history_of(broker, job.id)) == 1


def test_the_same_job_twice_in_one_call_is_settled_once(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    assert broker.settle([(job, succeeded(b"1")), (job, succeeded(b"2"))]) == [True, False]

    assert broker.get(job.id).result == b"1"
    assert len(history_of(broker, job.id)) == 1


def test_a_stale_attempt_changes_nothing(broker, clock, fields):
    """V22, G47: the zombie of attempt 1 cannot finish attempt 2."""
    stale = enqueue_and_claim(broker, clock, **fields)
    settle(broker, stale, put_back("limit"))
    [current] = claim(broker, worker="worker-2")

    assert not settle(broker, stale, succeeded(b'"stale"'))

    assert broker.get(stale.id).state is State.RUNNING
    assert settle(broker, current, succeeded(b'"current"'))
    assert broker.get(stale.id).result == b'"current"'


def test_a_job_that_is_ready_again_cannot_be_settled(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, put_back("limit"))

    assert not settle(broker, job, succeeded())

    assert broker.get(job.id).state is State.READY


def test_a_job_that_nobody_claimed_or_knows_cannot_be_settled(broker, clock, fields):
    waiting = a_job(clock, **fields)
    broker.enqueue([waiting])

    assert broker.settle([(waiting, succeeded()), (a_job(clock, **fields), succeeded())]) == [
        False,
        False,
    ]


def test_each_pair_is_answered_in_order(broker, clock, fields):
    jobs = some_jobs(clock, 4, **fields)
    broker.enqueue(jobs)
    first, second, third, fourth = claim(broker, limit=4)
    settle(broker, second, succeeded())

    answer = broker.settle(
        [(fourth, failed("x")), (second, succeeded()), (first, succeeded()), (third, put_back("y"))]
    )

    assert answer == [True, False, True, True]
    assert [broker.get(job.id).state for job in jobs] == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.READY,
        State.FAILED,
    ]


def test_settling_nothing_is_fine(broker):
    assert broker.settle([]) == []


def test_neighbours_end_in_any_order(broker, clock, fields):
    """G15: a, b, c running, b ends first."""
    broker.enqueue(some_jobs(clock, 3, **fields))
    first, second, third = claim(broker, limit=3)

    assert settle(broker, second, succeeded())
    assert broker.get(first.id).state is State.RUNNING
    assert settle(broker, third, failed("x"))
    assert settle(broker, first, succeeded())

    assert broker.get(second.id).state is State.SUCCEEDED
    assert broker.get(third.id).state is State.FAILED


# Lapses


def test_lapses_beyond_the_crash_budget_end_the_job(broker, clock, fields):
    """D27, C8: a poison job ends as failed: crashed."""
    job = enqueue_and_claim(broker, clock, **fields)
    for lapse in range(1, CRASH_BUDGET):
        settle(broker, job, lapsed())
        clock.advance(seconds=5)
        [job] = claim(broker)
        assert job.lapses == lapse

    settle(broker, job, lapsed())

    ended = broker.get(job.id)
    assert (ended.state, ended.reason, ended.lapses) == (State.FAILED, "crashed", CRASH_BUDGET)
    assert claim(broker) == []


def test_failures_do_not_use_up_the_crash_budget(broker, clock, fields):
    """D45, D46."""
    job = enqueue_and_claim(broker, clock, **fields)
    for _ in range(CRASH_BUDGET + 2):
        settle(broker, job, try_again("boom", clock.now()))
        [job] = claim(broker)

    assert (job.failures, job.lapses) == (CRASH_BUDGET + 2, 0)


def test_an_at_most_once_job_that_lapsed_is_lost(broker, clock):
    """C3: never run again; it ends for a person to decide."""
    job = enqueue_and_claim(broker, clock, at_most_once=True)

    settle(broker, job, lapsed())

    ended = broker.get(job.id)
    assert (ended.state, ended.reason) == (State.FAILED, "lost")
    assert claim(broker) == []


def test_an_at_most_once_job_that_never_began_may_be_put_back(broker, clock):
    job = enqueue_and_claim(broker, clock, at_most_once=True)

    settle(broker, job, put_back("shutdown"))

    assert [again.id for again in claim(broker)] == [job.id]


# Cancelled meanwhile


@pytest.mark.parametrize(
    "outcome",
    [
        put_back("shutdown"),
        try_again("boom", 0.0),
        lapsed(),
        Outcome(State.CANCELLED, "cancelled"),
    ],
    ids=["put back", "try again", "lapsed", "cancelled"],
)
def test_a_job_cancelled_while_it_ran_is_not_run_again(broker, clock, fields, outcome):
    """Whichever comes first stands: here the worker's word."""
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])

    assert settle(broker, job, outcome)

    ended = broker.get(job.id)
    assert (ended.state, ended.reason) == (State.CANCELLED, "cancelled")
    assert claim(broker) == []
    assert history_of(broker, job.id)[-1].state is State.CANCELLED


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("boom")], ids=["succeeded", "failed"])
def test_a_job_that_ends_by_itself_before_it_heard_of_the_cancel_stands(
    broker, clock, fields, outcome
):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.act("cancel", [job.id])

    assert settle(broker, job, outcome)

    assert broker.get(job.id).state is outcome.state


# History


def test_an_ended_attempt_leaves_one_row_that_tells_all(broker, clock):
    """D55, D62, D63: enqueued, due, started and ended times, worker, version, tags, outcome."""
    job = a_job(
        clock,
        queue="mail",
        version=1,
        priority=4,
        run_at=clock.now() + 10,
        tags={"tenant": "a"},
        body=b'{"args":{"n":1}}',
    )
    broker.enqueue([job])
    clock.advance(seconds=20)
    [claimed] = claim(broker, worker="worker-7")
    started_at = clock.now() + 1
    clock.advance(seconds=5)

    settle(
        broker,
        claimed,
        Outcome(State.SUCCEEDED, result=b"42", started_at=started_at, ended_at=started_at + 3),
    )

    [event] = history_of(broker, job.id)
    assert (event.kind, event.job, event.queue, event.task) == (
        "attempt",
        job.id,
        "mail",
        "mail:send",
    )
    assert (event.version, event.priority, event.attempt) == (1, 4, 1)
    assert (event.state, event.worker, event.tags) == (
        State.SUCCEEDED,
        "worker-7",
        {"tenant": "a"},
    )
    assert (event.enqueued_at, event.run_at) == (claimed.enqueued_at, job.run_at)
    assert (event.started_at, event.at) == (started_at, started_at + 3)
    assert (event.body, event.result, event.error) == (job.body, b"42", None)
    assert broker.get(job.id).ended_at == started_at + 3


def test_every_attempt_that_began_has_its_row_and_the_last_has_the_arguments(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, body=b'{"args":{"n":1}}', **fields)
    settle(broker, job, begun(try_again("first", clock.now()), clock.now()))
    [job] = claim(broker)
    settle(broker, job, begun(put_back("RetryLater"), clock.now()))
    [job] = claim(broker)
    settle(broker, job, lapsed())
    [job] = claim(broker)
    settle(broker, job, begun(failed("last"), clock.now()))

    events = history_of(broker, job.id)

    assert [(event.attempt, event.state, event.error) for event in events] == [
        (1, State.READY, "first"),
        (2, State.READY, None),
        (3, State.READY, None),
        (4, State.FAILED, "last"),
    ]
    assert [event.body for event in events] == [None, None, None, b'{"args":{"n":1}}']


def test_declared_secrets_do_not_reach_the_history(broker, clock, fields):
    """A secret argument is not shown once the job has ended."""
    body = b'{"args":{"to":"ada","token":"hunter2"},"secret":["token"]}'
    job = enqueue_and_claim(broker, clock, body=body, **fields)
    assert job.body == body

    settle(broker, job, succeeded())

    [event] = history_of(broker, job.id)
    assert json.loads(event.body)["args"] == {"to": "ada", "token": "***"}


def test_a_job_told_twice_does_not_take_its_neighbour_along(broker, clock):
    """Both came with one claim: two outcomes of the one are not one outcome of each."""
    broker.enqueue(some_jobs(clock, 2))
    first, second = claim(broker, limit=2)

    assert broker.settle([(first, succeeded(b"1")), (first, succeeded(b"2"))]) == [True, False]

    assert broker.get(first.id).result == b"1"
    assert broker.get(second.id).state is State.RUNNING
    assert settle(broker, second, succeeded())
