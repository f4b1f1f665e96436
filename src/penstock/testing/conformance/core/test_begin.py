"""Begin: a job's effects and its end commit together, where the store has a database of its own."""

from __future__ import annotations

import pytest

from penstock.broker.views import Note
from penstock.job import State, put_back, succeeded
from penstock.testing.conformance.factories import (
    claim,
    enqueue_and_claim,
    history_of,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.needs("begins")


@pytest.fixture
def broker(broker):
    """A broker that has a database, with a table of the application's in it."""
    transaction = broker.begin()
    transaction.connection.execute("drop table if exists effect")
    transaction.connection.execute("create table effect (job text)")
    transaction.connection.execute("commit")
    transaction.rollback()
    return broker


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def effects(broker):
    transaction = broker.begin()
    try:
        return [row[0] for row in transaction.connection.execute("select job from effect")]
    finally:
        transaction.rollback()


def test_the_effect_and_the_end_of_a_job_commit_together(broker, clock, fields):
    """C3, I7: exactly-once effect."""
    job = enqueue_and_claim(broker, clock, **fields)
    transaction = broker.begin()
    transaction.connection.execute(f"insert into effect values ('{job.id}')")

    assert transaction.settle(job, succeeded(b"1"))

    assert effects(broker) == [job.id]
    assert (broker.get(job.id).state, broker.get(job.id).result) == (State.SUCCEEDED, b"1")
    assert len(history_of(broker, job.id)) == 1
    assert not settle(broker, job, succeeded())


def test_a_stale_attempt_has_no_effect(broker, clock, fields):
    """C3: a stale token is refused, with everything it brings."""
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, put_back("limit"))
    [current] = claim(broker, worker="worker-2")
    transaction = broker.begin()
    transaction.connection.execute(f"insert into effect values ('{job.id}')")

    assert not transaction.settle(job, succeeded())

    assert effects(broker) == []
    assert settle(broker, current, succeeded())


def test_a_rollback_leaves_nothing_and_the_job_runs_on(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    transaction = broker.begin()
    transaction.connection.execute(f"insert into effect values ('{job.id}')")

    transaction.rollback()

    assert effects(broker) == []
    assert broker.get(job.id).state is State.RUNNING
    assert settle(broker, job, succeeded())


def test_neighbours_are_not_touched(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 3, **fields))
    first, second, third = claim(broker, limit=3)

    assert broker.begin().settle(second, succeeded())

    assert broker.settle([(first, succeeded()), (second, succeeded()), (third, succeeded())]) == [
        True,
        False,
        True,
    ]


def test_no_savepoint_keeps_or_drops_a_job(broker, clock, fields):
    """A25: it is held by its worker's row, whatever a task undoes in its own transaction."""
    job = enqueue_and_claim(broker, clock, **fields)
    transaction = broker.begin()
    undone_in_part(transaction.connection, job)
    transaction.rollback()

    assert (broker.get(job.id).state, broker.get(job.id).worker) == (State.RUNNING, job.worker)
    assert claim(broker, worker="worker-2") == []
    assert broker.note(job, Note("snapshot", value=b"1"))
    again = broker.begin()
    undone_in_part(again.connection, job)
    assert again.settle(job, succeeded())

    assert effects(broker) == [job.id]
    assert claim(broker, worker="worker-2") == []
    assert broker.get(job.id).state is State.SUCCEEDED


def undone_in_part(connection, job):
    """One effect that stays, and one that a savepoint takes back."""
    connection.execute(f"insert into effect values ('{job.id}')")
    connection.execute("savepoint mine")
    connection.execute("insert into effect values ('undone')")
    connection.execute("rollback to savepoint mine")
