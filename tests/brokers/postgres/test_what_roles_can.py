"""What the threat model says that a role of the database can do: it is no surprise, and no more."""

from __future__ import annotations

import json

import psycopg
import pytest

from penstock.broker.filter import Filter
from penstock.brokers.postgres import PostgresBroker
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import a_job, claim, settle
from tests.brokers.postgres.logins import Logins

SECRET = b'{"args":{"card":"4111-canary"},"secret":["card"]}'
SHAPES = [{}, {"tags": {"tenant": "a"}}]  # in a parcel, and in a row of its own


def member(logins: Logins, role: str, clock) -> PostgresBroker:
    name = logins.login()
    logins.grant_roles(**{role: [name]})
    return PostgresBroker(logins.url_of(name), clock=clock)


@pytest.fixture
def owner(logins: Logins, clock):
    broker = PostgresBroker(logins.url, clock=clock)
    yield broker
    broker.close()


@pytest.mark.parametrize("role", ["viewer", "producer", "worker"])
def test_every_role_reads_all_jobs_and_the_secrets_of_those_that_have_not_ended(
    owner, logins, clock, role
):
    waiting = [a_job(clock, body=SECRET, **fields) for fields in SHAPES]
    ended = [a_job(clock, task="ended", body=SECRET, **fields) for fields in SHAPES]
    owner.enqueue([*waiting, *ended])
    for job in claim(owner, limit=4, tasks={"ended": 1}):
        settle(owner, job, failed("no"))
    broker = member(logins, role, clock)

    found = broker.find(Filter()).jobs
    secrets = {job.id: json.loads(job.body)["args"]["card"] for job in found}
    broker.close()

    assert secrets == {
        **{job.id: "4111-canary" for job in waiting},
        **{job.id: "***" for job in ended},
    }


def test_a_producer_calls_any_task_with_any_arguments(owner, logins, clock):
    broker = member(logins, "producer", clock)
    job = a_job(clock, task="bank:transfer", queue="of_others", body=b'{"args":{"to":"eve"}}')

    broker.enqueue([job])
    broker.close()

    [claimed] = claim(owner, tasks={"bank:transfer": 1}, queues=("of_others",))
    assert claimed.body == job.body


def test_a_worker_settles_jobs_with_any_result(owner, logins, clock):
    job = a_job(clock)
    owner.enqueue([job])
    broker = member(logins, "worker", clock)
    [claimed] = claim(broker)

    settle(broker, claimed, succeeded(b'"made up"'))
    broker.close()

    assert (owner.get(job.id).state, owner.get(job.id).result) == (State.SUCCEEDED, b'"made up"')


def test_the_owner_of_the_schema_can_change_the_audit(owner, logins):
    owner.audit("enqueue", "eve", "by hand", {"jobs": 1})

    with psycopg.connect(logins.url) as connection:
        changed = connection.execute(
            "update penstock.history set data = '{\"author\":\"ada\"}' where kind = 'enqueue'"
        ).rowcount

    assert changed == 1
    [event] = owner.history(None, 10, kind="enqueue")
    assert json.loads(event.data or b"") == {"author": "ada"}
