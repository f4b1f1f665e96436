"""V19: a plain job is written once when it is added, once when it starts and once when it ends.

Counted by transaction numbers: the server gives one to each transaction that writes, and none to
one that only looks.
"""

from __future__ import annotations

import psycopg
import pytest

from penstock.broker.values import Wanted
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_job, a_worker, begun, claim, settle


@pytest.fixture
def transactions(postgres_store_url):
    """How many transactions have written so far."""
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:

        def count() -> int:
            question = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            [[number]] = connection.execute(question).fetchall()
            return number

        yield count


def fewest(transactions, times: int, work) -> int:
    """Of several rounds, as the server may write for itself in between."""
    rounds: list[int] = []
    for _ in range(times):
        before = transactions()
        work()
        rounds.append(transactions() - before)
    return min(rounds)


def test_one_to_add_one_to_start_and_one_to_end(postgres_broker, clock, transactions):
    postgres_broker.enqueue([a_job(clock)])  # the first of its kind stores its lane
    [job] = claim(postgres_broker)
    settle(postgres_broker, job, begun(succeeded(), clock.now()))
    held = []

    def add():
        postgres_broker.enqueue([a_job(clock)])

    def start():
        held.extend(claim(postgres_broker))

    def end():
        settle(postgres_broker, held.pop(), begun(succeeded(), clock.now()))

    assert [fewest(transactions, 5, work) for work in (add, start, end)] == [1, 1, 1]


def test_the_end_of_a_job_and_the_start_of_the_next_are_one(postgres_broker, clock, transactions):
    postgres_broker.enqueue([a_job(clock) for _ in range(7)])
    wanted = [Wanted(a_worker())]
    held = list(claim(postgres_broker))

    def next_one():
        ended = [(held.pop(), begun(succeeded(), clock.now()))]
        claimed = postgres_broker.claim(wanted, ended)
        assert claimed.accepted == [True]
        held.extend(claimed.jobs[0])

    assert fewest(transactions, 5, next_one) == 1


def test_jobs_that_come_together_need_a_fraction_of_a_write_each(
    postgres_broker, clock, transactions
):
    """V30: what a job that is stored as running would save, one of two writes, they do not pay."""
    wanted = [Wanted(a_worker(), limit=100)]

    def add_and_start():
        postgres_broker.enqueue([a_job(clock) for _ in range(300)])
        started = [len(postgres_broker.claim(wanted).jobs[0]) for _ in range(3)]
        assert started == [100, 100, 100]

    assert fewest(transactions, 3, add_and_start) <= 300 / 50
