"""Secrets: once a job has ended, however it ended, the store does not have them any more."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.job import State, failed, lapsed, put_back, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    begun,
    claim,
    end_all,
    history_of,
    ids_of,
    part,
    settle,
)

BODY = b'{"args":{"to":"ada","token":"hunter2"},"secret":["token"]}'
SHAPES = [{}, {"key": "ada"}]  # packed with others, and a row of its own


def gone(broker, job_id):
    """The state of a job whose secret is stored nowhere that a verb of the protocol reads."""
    job = broker.get(job_id)
    assert json.loads(job.body)["args"] == {"to": "ada", "token": "***"}
    assert all(b"hunter2" not in (event.body or b"") for event in history_of(broker, job_id))
    return job.state, job.reason


@pytest.mark.parametrize("fields", SHAPES)
def test_a_job_that_failed_has_no_secrets(broker, clock, fields):
    job = a_job(clock, body=BODY, **fields)
    broker.enqueue([job])

    end_all(broker, begun(failed("boom"), clock.now()))

    assert gone(broker, job.id) == (State.FAILED, "error")


@pytest.mark.parametrize("fields", SHAPES)
def test_a_job_cancelled_before_it_ran_has_no_secrets(broker, clock, fields):
    jobs = [a_job(clock, body=BODY, **fields) for _ in range(3)]
    broker.enqueue(jobs)

    broker.act("cancel", [jobs[1].id])

    assert gone(broker, jobs[1].id) == (State.CANCELLED, "cancelled")
    assert [job.body for job in claim(broker, limit=3)] == [BODY, BODY]


@pytest.mark.parametrize("fields", SHAPES)
def test_a_job_cancelled_while_it_ran_has_no_secrets(broker, clock, fields):
    job = a_job(clock, body=BODY, **fields)
    broker.enqueue([job])
    [claimed] = claim(broker)
    broker.act("cancel", [job.id])

    settle(broker, claimed, begun(put_back("shutdown"), clock.now()))

    assert gone(broker, job.id) == (State.CANCELLED, "cancelled")


def test_a_job_that_expired_has_no_secrets(broker, clock):
    job = a_job(clock, body=BODY, expires_at=clock.now() + 5)
    broker.enqueue([job])
    clock.advance(6)

    assert claim(broker) == []

    assert gone(broker, job.id) == (State.CANCELLED, "expired")


@pytest.mark.parametrize("fields", SHAPES)
def test_a_job_that_crashed_too_often_has_no_secrets(broker, clock, fields):
    job = a_job(clock, body=BODY, **fields)
    broker.enqueue([job])
    for _ in range(3):
        [claimed] = claim(broker)
        assert claimed.body == BODY
        settle(broker, claimed, lapsed())
        clock.advance(seconds=3600)  # a crash puts it off

    assert gone(broker, job.id) == (State.FAILED, "crashed")


def test_a_job_that_was_lost_has_no_secrets(broker, clock):
    job = a_job(clock, body=BODY, at_most_once=True)
    broker.enqueue([job])
    assert ids_of(claim(broker)) == [job.id]

    broker.recover(dead="worker-1", started=[job.id])

    assert gone(broker, job.id) == (State.FAILED, "lost")


def with_secret(parts, *names):
    """The flow, with a secret argument in the jobs of these parts."""
    for name in names:
        for place, job in enumerate(parts.named[name]):
            fields = msgspec.json.decode(job.body) | {"args": {"to": "ada", "token": "hunter2"}}
            body = msgspec.json.encode({**fields, "secret": ["token"], "flow": fields.pop("flow")})
            parts.named[name][place] = msgspec.structs.replace(job, body=body)
    return parts


def test_a_job_cancelled_because_of_a_need_has_no_secrets(broker, clock):
    flow = with_secret(a_flow(clock, first=part(), last=part("first")), "first", "last")
    flow.send(broker)

    end_all(broker, begun(failed("boom"), clock.now()))

    [first, last] = flow.ids("first", "last")
    assert gone(broker, first) == (State.FAILED, "error")
    assert gone(broker, last) == (State.CANCELLED, "needs")


def test_jobs_of_a_cancelled_flow_have_no_secrets(broker, clock):
    flow = with_secret(a_flow(clock, many=part(jobs=3), last=part("many")), "many", "last")
    flow.send(broker)

    broker.act("cancel", flow=flow.flow.id)

    assert {gone(broker, job) for job in flow.ids("many", "last")} == {
        (State.CANCELLED, "cancelled")
    }


def test_spawned_jobs_lose_their_secrets_as_others_do(broker, clock):
    parent = a_job(clock)
    broker.enqueue([parent])
    [claimed] = claim(broker)
    flow = with_secret(a_flow(clock, first=part(), last=part("first")), "first", "last")
    settle(broker, claimed, begun(flow.spawned_by(succeeded()), clock.now()))

    end_all(broker, begun(failed("boom"), clock.now()))

    assert [gone(broker, job)[0] for job in flow.ids("first", "last")] == [
        State.FAILED,
        State.CANCELLED,
    ]


def test_the_place_of_an_output_stays_for_the_retry(broker, clock):
    """A secret that another job gives is not in the arguments, and is filled in when it runs."""
    flow = a_flow(clock, first=part(), last=part("first"))
    [first, last] = flow.ids("first", "last")
    [job] = flow.named["last"]
    place = msgspec.json.decode(job.body)["flow"] | {"fill": [[["token"], flow.nodes["first"]]]}
    fields = {"args": {"to": "ada", "token": None}, "secret": ["token"], "flow": place}
    body = msgspec.json.encode(fields)
    flow.named["last"] = [msgspec.structs.replace(job, body=body)]
    flow.send(broker)
    end_all(broker, begun(failed("boom"), clock.now()))

    assert set(broker.act("retry", [first])) == {first}

    end_all(broker, begun(succeeded(b'"hunter2"'), clock.now()))
    [claimed] = claim(broker)
    assert (claimed.id, claimed.body) == (last, body)


def test_a_job_that_waited_for_a_retried_one_stays_cancelled_without_its_secrets(broker, clock):
    """And so does what needs it: it would wait for a job that nobody can run."""
    flow = a_flow(clock, first=part(), second=part("first"), last=part("second"))
    with_secret(flow, "second").send(broker)
    end_all(broker, begun(failed("boom"), clock.now()))
    [first, second, last] = flow.ids("first", "second", "last")

    assert set(broker.act("retry", flow=flow.flow.id)) == {first}

    states = [broker.get(job).state for job in (first, second, last)]
    assert states == [State.READY, State.CANCELLED, State.CANCELLED]
    end_all(broker, begun(succeeded(), clock.now()))
    assert claim(broker) == []


def test_a_flow_goes_on_once_the_secrets_are_given(broker, clock):
    flow = a_flow(clock, first=part(), second=part("first"), last=part("second"))
    with_secret(flow, "second").send(broker)
    end_all(broker, begun(failed("boom"), clock.now()))
    [first, second, last] = flow.ids("first", "second", "last")
    broker.act("retry", [first])
    end_all(broker, begun(succeeded(), clock.now()))

    assert second in broker.act("retry", [second], secrets={"token": "another"})

    assert end_all(broker, begun(succeeded(), clock.now())) == [second]
    assert end_all(broker, begun(succeeded(), clock.now())) == [last]
