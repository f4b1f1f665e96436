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
