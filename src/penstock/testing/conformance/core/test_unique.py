"""Unique keys: while one stands, a second job with it is named and not stored."""

from __future__ import annotations

import pytest

from penstock.job import Job, State, Unique, succeeded, try_again
from penstock.testing.conformance.ends import ENDS
from penstock.testing.conformance.factories import a_job, enqueue_and_claim, settle


def unique(clock, key="welcome", until="ended", seconds=None, **fields) -> Job:
    return a_job(clock, unique=Unique(key, until, seconds), **fields)


def test_a_second_job_with_a_standing_key_is_named_and_the_rest_is_stored(broker, clock):
    first, second, other = unique(clock), unique(clock), a_job(clock)
    broker.enqueue([first])

    answer = broker.enqueue([second, other])

    assert answer.standing == {second.id: first.id}
    assert broker.get(second.id) is None
    assert broker.get(other.id).state is State.READY


def test_of_two_jobs_with_one_key_in_one_call_the_first_is_stored(broker, clock):
    first, second = unique(clock), unique(clock)

    answer = broker.enqueue([first, second])

    assert answer.standing == {second.id: first.id}
    assert broker.get(second.id) is None


def test_a_key_is_one_for_all_queues_and_tasks(broker, clock):
    first = unique(clock, queue="a", task="mail:send")
    second = unique(clock, queue="b", task="media:resize")

    answer = broker.enqueue([first, second])

    assert answer.standing == {second.id: first.id}


def test_the_holder_sent_again_is_known_not_standing(broker, clock):
    first = unique(clock)
    broker.enqueue([first])

    answer = broker.enqueue([first])

    assert (answer.known, answer.standing) == ({first.id}, {})


def test_a_job_that_was_kept_out_is_stored_once_the_key_is_free(broker, clock):
    first, second = unique(clock), unique(clock)
    broker.enqueue([first, second])
    broker.act("cancel", [first.id])

    answer = broker.enqueue([second])

    assert (answer.known, answer.standing) == (frozenset(), {})
    assert broker.get(second.id).state is State.READY


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("until", ["started", "ended"])
def test_a_key_is_free_when_its_job_has_ended(broker, clock, end, until):
    first, second = unique(clock, until=until), unique(clock, until=until)
    broker.enqueue([first])
    end(broker, first)

    assert broker.enqueue([second]).standing == {}


@pytest.mark.parametrize("until", ["started", "ended"])
def test_a_key_is_free_when_its_job_has_expired(broker, clock, until):
    first = unique(clock, until=until, expires_at=clock.now() + 10)
    broker.enqueue([first])
    clock.advance(seconds=11)
    broker.recover()

    assert broker.enqueue([unique(clock)]).standing == {}


def test_a_key_until_ended_stands_while_the_job_runs_and_is_tried_again(broker, clock):
    job = enqueue_and_claim(broker, clock, unique=Unique("welcome"))
    assert broker.enqueue([unique(clock)]).standing != {}

    settle(broker, job, try_again("boom", clock.now() + 60))

    assert broker.enqueue([unique(clock)]).standing != {}


def test_a_key_until_started_is_free_from_the_claim_on(broker, clock):
    enqueue_and_claim(broker, clock, unique=Unique("welcome", "started"))

    second = unique(clock, until="started")

    assert broker.enqueue([second]).standing == {}
    assert broker.get(second.id).state is State.READY


def test_a_key_for_a_time_stands_that_long_whatever_becomes_of_the_job(broker, clock):
    job = enqueue_and_claim(broker, clock, unique=Unique("welcome", "time", 60))
    settle(broker, job, succeeded())
    clock.advance(seconds=59)
    early = unique(clock)

    assert broker.enqueue([early]).standing == {early.id: job.id}
    clock.advance(seconds=2)

    assert broker.enqueue([unique(clock)]).standing == {}


def test_a_key_for_a_time_outlives_a_deleted_job(broker, clock):
    first = unique(clock, until="time", seconds=60)
    broker.enqueue([first])
    broker.act("delete", [first.id])

    second = unique(clock)

    assert broker.enqueue([second]).standing == {second.id: first.id}


@pytest.mark.parametrize("until", ["started", "ended"])
def test_seconds_limit_the_other_scopes_as_well(broker, clock, until):
    broker.enqueue([unique(clock, until=until, seconds=60)])
    clock.advance(seconds=61)

    assert broker.enqueue([unique(clock)]).standing == {}


def test_the_end_of_an_older_holder_leaves_the_newer_one_standing(broker, clock):
    old = unique(clock, seconds=60)
    broker.enqueue([old])
    clock.advance(seconds=61)
    new = unique(clock)
    broker.enqueue([new])
    broker.act("cancel", [old.id])

    late = unique(clock)

    assert broker.enqueue([late]).standing == {late.id: new.id}


# Replace


def replacing(clock, key="welcome", until="ended", **fields) -> Job:
    return a_job(clock, unique=Unique(key, until, replace=True), **fields)


def test_a_job_that_replaces_takes_the_key_and_the_time_of_one_that_was_not_claimed(broker, clock):
    first = unique(clock, run_at=clock.now() + 60, tags={"n": "1"}, body=b'{"args":{"n":1}}')
    broker.enqueue([first])
    second = replacing(clock, tags={"n": "2"}, body=b'{"args":{"n":2}}')

    answer = broker.enqueue([second])

    assert (answer.known, answer.standing) == (frozenset(), {})
    gone, kept = broker.get(first.id), broker.get(second.id)
    assert (gone.state, gone.reason) == (State.CANCELLED, "replaced")
    assert (kept.state, kept.body, kept.run_at) == (State.READY, second.body, first.run_at)
    assert kept.unique == Unique("welcome")
    assert [row.reason for row in broker.history(job=first.id)] == ["replaced"]
    [count] = broker.count()
    assert (count.scheduled, count.total) == (1, 1)
    third = unique(clock)
    assert broker.enqueue([third]).standing == {third.id: second.id}


def test_a_time_of_its_own_moves_the_job(broker, clock):
    broker.enqueue([unique(clock, run_at=clock.now() + 60)])

    broker.enqueue([replacing(clock, run_at=clock.now() + 90)])

    [count] = broker.count()
    assert count.scheduled == 1
    clock.advance(61)
    assert broker.count()[0].scheduled == 1
    clock.advance(30)
    assert broker.count()[0].ready == 1


@pytest.mark.parametrize(("until", "stored"), [("ended", False), ("started", True)])
def test_a_job_that_was_claimed_is_not_replaced(broker, clock, until, stored):
    running = enqueue_and_claim(broker, clock, unique=Unique("welcome", until))
    second = replacing(clock, until=until)

    answer = broker.enqueue([second])

    assert answer.standing == ({} if stored else {second.id: running.id})
    assert broker.get(running.id).state is State.RUNNING
    settle(broker, running, try_again("no", clock.now()))
    third = replacing(clock, until=until)
    assert broker.enqueue([third]).standing == ({} if stored else {third.id: running.id})


def test_one_that_was_replaced_and_is_sent_again_changes_nothing(broker, clock):
    first, second = replacing(clock), replacing(clock)
    broker.enqueue([first])
    broker.enqueue([second])

    assert broker.enqueue([first]).known == {first.id}
    assert broker.enqueue([second]).known == {second.id}
    assert broker.get(first.id).state is State.CANCELLED
    assert broker.get(second.id).state is State.READY


def test_of_several_that_replace_in_one_call_the_last_stands(broker, clock):
    jobs = [replacing(clock) for _ in range(3)]
    other = replacing(clock, key="other")

    answer = broker.enqueue([*jobs, other])

    assert answer.standing == {}
    states = [broker.get(job.id).state for job in jobs]
    assert states == [State.CANCELLED, State.CANCELLED, State.READY]
    assert broker.get(other.id).state is State.READY


def test_the_row_of_a_replaced_job_goes_with_the_next_prune(broker, clock):
    first, second = replacing(clock), replacing(clock)
    broker.enqueue([first])
    broker.enqueue([second])

    clock.advance(1)
    broker.prune(clock.now() - 3600)

    assert broker.get(first.id) is None
    assert broker.enqueue([first]).known == {first.id}
