"""penstock.settle: a job ends in the caller's own transaction, from SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.errors import InvalidParameterValue
from psycopg.types.json import Jsonb

from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, State, Unique, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_flow, a_job, claim, history_of, part

SETTLE = "select penstock.settle(%s, %s, %s, %s)"


@pytest.fixture
def broker(postgres_url: str, clock: Clock) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(postgres_url, clock=clock)
    yield broker
    broker.close()


@pytest.fixture
def connection(broker: PostgresBroker, postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    assert broker.count() == []
    with psycopg.connect(postgres_url) as connection:
        yield connection


def settle(connection, job: Job[Any], state: str = "succeeded", result: Any = None) -> bool:
    value = None if result is None else Jsonb(result)
    [[settled]] = connection.execute(SETTLE, (job.id, job.attempt, state, value)).fetchall()
    return settled


@pytest.mark.parametrize("fields", [{}, {"key": "ada"}], ids=["packed", "row"])
def test_it_ends_with_the_callers_transaction_or_not_at_all(broker, connection, clock, fields):
    """V60."""
    jobs = [a_job(clock, **fields) for _ in range(3)]
    broker.enqueue(jobs)
    first, second, third = claim(broker, limit=3)

    assert settle(connection, first, result={"n": 7})
    connection.rollback()
    assert broker.get(first.id).state is State.RUNNING
    assert settle(connection, first, result={"n": 7})
    connection.commit()

    stored = broker.get(first.id)
    assert (stored.state, stored.result) == (State.SUCCEEDED, b'{"n": 7}')
    assert not settle(connection, first)
    connection.rollback()
    # The worker that ran it is told that it does not hold it any more; its other jobs go on.
    assert broker.settle([(job, succeeded()) for job in (first, second, third)]) == [
        *(False, True, True)
    ]
    assert [event.state for event in history_of(broker, first.id)] == [State.SUCCEEDED]
    assert broker.count() == []


@pytest.mark.parametrize("fields", [{}, {"unique": Unique("once")}], ids=["packed", "row"])
def test_a_failed_one_is_kept_with_its_error(broker, connection, clock, fields):
    job = a_job(clock, **fields)
    broker.enqueue([job])
    [running] = claim(broker)

    assert settle(connection, running, "failed", "no money")
    connection.commit()

    stored = broker.get(job.id)
    assert (stored.state, stored.error, stored.failures) == (State.FAILED, "no money", 1)
    assert [(row.failed, row.running) for row in broker.count()] == [(1, 0)]
    [event] = history_of(broker, job.id)
    assert (event.state, event.error, event.worker) == (State.FAILED, "no money", "worker-1")
    assert broker.enqueue([a_job(clock, **fields)]).standing == {}  # its unique key is free
    assert broker.act("retry", [job.id]) == ([] if fields else [job.id])


def test_another_attempt_changes_nothing(broker, connection, clock):
    job = a_job(clock)
    broker.enqueue([job])
    assert not settle(connection, job)
    [running] = claim(broker)

    before = msgspec.structs.replace(running, attempt=running.attempt - 1)
    after = msgspec.structs.replace(running, attempt=running.attempt + 1)

    assert [settle(connection, each) for each in (before, after)] == [False, False]
    connection.commit()
    assert broker.get(job.id).state is State.RUNNING


def test_a_secret_does_not_outlive_it(broker, connection, clock):
    body = b'{"args":{"card":"4111-1111","n":1},"secret":["card"]}'
    jobs = [a_job(clock, body=body) for _ in range(2)]
    broker.enqueue(jobs)
    first, _ = claim(broker, limit=2)

    assert settle(connection, first)
    [[leases]] = connection.execute("select string_agg(bodies, '') from penstock.lease").fetchall()
    connection.commit()

    assert b"4111" not in broker.get(first.id).body
    assert leases.count(b"4111-1111") == 1


@pytest.mark.parametrize("state", ["ready", "", None])
def test_any_other_state_is_refused(broker, connection, clock, state):
    broker.enqueue([a_job(clock)])
    [running] = claim(broker)

    with pytest.raises(InvalidParameterValue, match="succeeded, with the result, or failed"):
        settle(connection, running, state)


def test_a_member_of_a_flow_is_refused(broker, connection, clock):
    made = a_flow(clock, first=part(), then=part("first"))
    broker.enqueue(made.jobs, flow=made.flow)
    [running] = claim(broker)

    with pytest.raises(InvalidParameterValue, match="is in a flow"):
        settle(connection, running)


def test_it_makes_room_under_a_limit(broker, connection, clock):
    broker.put(Rule(RuleKind.LIMIT, queue="default", running=1))
    broker.enqueue([a_job(clock), a_job(clock)])
    [running] = claim(broker)
    assert claim(broker) == []

    settle(connection, running)
    connection.commit()

    assert len(claim(broker)) == 1
