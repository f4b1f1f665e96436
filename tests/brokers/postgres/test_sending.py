"""Sending on PostgreSQL: who waits for whom, and what a sender may say of what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from penstock.broker.values import Enqueued
from penstock.brokers.postgres.errors import AnswerLost
from penstock.brokers.postgres.retrying import sent_again
from penstock.enqueue.ids import Ids
from penstock.errors import Refused, StoreFull, StoreUnreachable
from penstock.job import Job, Unique, succeeded
from penstock.testing.conformance.factories import a_job, claim

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = %s"


@pytest.fixture
def other(postgres_broker, postgres_store_url) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's transaction, which stays open until the test ends it."""
    with psycopg.connect(postgres_store_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def all_wait(postgres_store_url) -> Iterator[Callable[[int], None]]:
    """Return once so many sessions wait for a lock."""
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:

        def all_wait(count: int) -> None:
            for _ in range(20_000):
                [(found,)] = connection.execute(WAITING, (connection.info.dbname,))
                if found >= count:
                    return
            raise AssertionError("nobody waits")

        yield all_wait


def begin(verb: Callable[[], Any]) -> Future[Any]:
    """On a thread of its own."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(verb())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


def sent(connection: psycopg.Connection[Any], job: Job[Any]) -> None:
    connection.execute(
        "insert into penstock.sent (id, jobs, lane) values (%s, 1, %s)", (job.id, job.lane.hash)
    )


@pytest.mark.parametrize("until", ["started", "ended"])
def test_a_caller_whose_job_only_stands_keeps_nobody_waiting(postgres_broker, clock, other, until):
    unique = Unique("welcome-ada", until)
    postgres_broker.enqueue([a_job(clock, unique=unique)])
    clock.advance(seconds=1)
    waiting = a_job(clock, unique=unique)
    assert waiting.id in postgres_broker.enqueue([waiting], connection=other).standing

    [held] = claim(postgres_broker)
    assert postgres_broker.settle([(held, succeeded())]) == [True]

    clock.advance(seconds=1)
    assert postgres_broker.enqueue([a_job(clock, unique=unique)]).standing == {}


def test_of_two_who_take_a_key_at_the_same_moment_the_later_one_stands(
    postgres_broker, clock, other, all_wait
):
    first, second = (a_job(clock, unique=Unique("welcome-ada")) for _ in range(2))
    postgres_broker.enqueue([first], connection=other)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue([second]))
    all_wait(1)
    other.commit()

    assert answer.result(60).standing == {second.id: first.id}


def test_of_two_who_take_an_expired_key_over_the_later_one_stands(
    postgres_broker, clock, other, all_wait
):
    unique = Unique("welcome-ada", seconds=10)
    postgres_broker.enqueue([a_job(clock, unique=unique)])
    clock.advance(seconds=11)
    first, second = (a_job(clock, unique=unique) for _ in range(2))
    assert postgres_broker.enqueue([first], connection=other).standing == {}

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue([second]))
    all_wait(1)
    other.commit()

    assert answer.result(60).standing == {second.id: first.id}


def test_a_job_that_another_sender_stored_meanwhile_does_not_hold_its_key(
    postgres_broker, clock, other, all_wait
):
    job = a_job(clock, unique=Unique("welcome-ada"))
    sent(other, job)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue([job]))
    all_wait(1)
    other.commit()

    assert answer.result(60).known == {job.id}
    assert postgres_broker.enqueue([a_job(clock, unique=Unique("welcome-ada"))]).standing == {}


def test_two_senders_of_the_same_jobs_in_another_order_wait_for_one_another_in_one(
    postgres_broker, clock, other, all_wait
):
    first, second = (a_job(clock, key="ada") for _ in range(2))
    sent(other, first)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue([second, first]))
    all_wait(1)
    sent(other, second)
    other.commit()

    assert answer.result(60).known == {first.id, second.id}


def test_a_sender_that_the_server_ended_for_another_tries_again(
    postgres_broker, clock, other, all_wait
):
    first, second = (a_job(clock, key="ada") for _ in range(2))
    other.execute("set deadlock_timeout = '60s'")  # so that it is not this one that gives way
    sent(other, second)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue([first, second]))
    all_wait(1)
    sent(other, first)
    other.commit()

    assert answer.result(60).known == {first.id, second.id}


def runs(clock, count: int, each: int) -> list[Job[Any]]:
    """Jobs of so many runs of ids."""
    jobs: list[Job[Any]] = []
    for _ in range(count):
        ids = Ids(clock)
        jobs += [Job(task="mail:send", id=ids.next()) for _ in range(each)]
    return jobs


@pytest.mark.parametrize("each", [1, 2])
def test_a_sender_of_very_many_waits_for_nobody_who_sends_something_else(
    postgres_broker, clock, other, each
):
    postgres_broker.enqueue(runs(clock, 2, 2), connection=other)
    clock.advance(seconds=2)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue(runs(clock, 1001, each)))

    assert answer.result(60).known == frozenset()
    assert sum(count.ready for count in postgres_broker.count()) == 1001 * each


def test_nobody_waits_behind_a_sender_of_very_many(postgres_broker, clock, other, all_wait):
    many = runs(clock, 1001, 2)
    postgres_broker.enqueue(runs(clock, 1, 2), connection=other)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue(many))
    all_wait(1)
    quick = [begin(lambda: postgres_broker.enqueue(runs(clock, 1, 2))) for _ in range(10)]
    for each in quick:
        each.result(60)
    assert not answer.done()
    other.rollback()

    assert answer.result(60).known == frozenset()


def test_the_same_jobs_of_very_many_cut_differently_are_stored_once(
    postgres_broker, clock, other, all_wait
):
    many = runs(clock, 1001, 3)
    postgres_broker.enqueue(many[:2], connection=other)

    answer: Future[Enqueued] = begin(lambda: postgres_broker.enqueue(many[1:]))
    all_wait(1)
    other.commit()

    assert answer.result(60).known == {many[1].id}
    assert sum(count.ready for count in postgres_broker.count()) == len(many)


@pytest.mark.parametrize(
    "error", [Refused("too old"), StoreFull("no room"), StoreUnreachable("gone")]
)
def test_a_second_send_that_fails_says_nothing_about_the_first(error):
    answers = iter([AnswerLost("no answer"), error])

    def send() -> None:
        raise next(answers)

    with pytest.raises(AnswerLost, match=str(error)):
        sent_again(send)
