"""`keep_secrets`: encrypted secrets of a job that failed or was cancelled stay for a while."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    begun,
    claim,
    end_all,
    history_of,
    part,
)

SPAN = 600
SEALED = {"$sealed": "0011aabb.j.hunter2"}  # what a key ring makes of it is of no concern here
SHAPES = [{}, {"key": "ada"}]  # packed with others, and a row of its own


def body_of(**arguments):
    args = {"to": "ada", "token": SEALED, **arguments}
    fields = {"args": args, "secret": ["token", "pin"], "keep_secrets": SPAN}
    return json.dumps(fields, separators=(",", ":")).encode()


def args_of(broker, job_id):
    return json.loads(broker.get(job_id).body)["args"]


def prune(broker, clock):
    broker.prune(clock.now() - 86400)


@pytest.mark.parametrize("fields", SHAPES)
def test_a_failed_job_keeps_them_for_its_span(broker, clock, fields):
    job = a_job(clock, body=body_of(), **fields)
    broker.enqueue([job])
    end_all(broker, begun(failed("boom"), clock.now()))
    clock.advance(SPAN - 1)
    prune(broker, clock)

    assert args_of(broker, job.id) == {"to": "ada", "token": SEALED}
    assert broker.act("retry", [job.id]) == [job.id]

    [again] = claim(broker)
    assert json.loads(again.body) == json.loads(body_of())


@pytest.mark.parametrize("fields", SHAPES)
def test_they_are_gone_after_their_span(broker, clock, fields):
    job = a_job(clock, body=body_of(), **fields)
    broker.enqueue([job])
    end_all(broker, begun(failed("boom"), clock.now()))
    clock.advance(SPAN)

    # Not even a retry before the next prune has them.
    assert broker.act("retry", [job.id]) == []
    assert "secrets" in broker.why(job.id).sentence
    prune(broker, clock)

    assert b"hunter2" not in broker.get(job.id).body
    assert args_of(broker, job.id) == {"to": "ada", "token": "***"}
    assert broker.act("retry", [job.id]) == []
    assert broker.act("retry", [job.id], secrets={"token": "another"}) == [job.id]
    assert json.loads(claim(broker)[0].body)["args"]["token"] == "another"


@pytest.mark.parametrize("fields", SHAPES)
def test_the_history_and_the_index_never_have_them(broker, clock, fields):
    job = a_job(clock, body=body_of(), **fields)
    broker.enqueue([job])
    end_all(broker, begun(failed("boom"), clock.now()))

    assert all(b"hunter2" not in (event.body or b"") for event in history_of(broker, job.id))
    assert broker.find(Filter(args={"to": ("ada",)})).jobs != []
    guess = json.dumps(SEALED, separators=(",", ":"))
    for name, value in (("token", guess), ("token.$sealed", SEALED["$sealed"])):
        assert broker.find(Filter(args={name: (value,)})).jobs == []


def test_a_job_that_was_cancelled_keeps_them(broker, clock):
    jobs = [a_job(clock, body=body_of()) for _ in range(3)]
    keyed = a_job(clock, body=body_of(), key="ada")
    expiring = a_job(clock, body=body_of(), expires_at=clock.now() + 5)
    broker.enqueue([*jobs, keyed, expiring])
    clock.advance(6)
    broker.act("cancel", [jobs[1].id, keyed.id])
    broker.recover()
    claim(broker, limit=2)

    ended = [jobs[1].id, keyed.id, expiring.id]
    assert [broker.get(id).state for id in ended] == [State.CANCELLED] * 3
    assert all(args_of(broker, id)["token"] == SEALED for id in ended)
    clock.advance(SPAN)
    prune(broker, clock)
    assert all(args_of(broker, id)["token"] == "***" for id in ended)


def test_what_is_not_encrypted_is_never_kept(broker, clock):
    job = a_job(clock, body=body_of(pin="0000"))
    clear = a_job(clock, body=body_of(token="hunter2"))
    broker.enqueue([job, clear])
    end_all(broker, begun(failed("boom"), clock.now()))

    assert args_of(broker, job.id) == {"to": "ada", "token": SEALED, "pin": "***"}
    assert args_of(broker, clear.id) == {"to": "ada", "token": "***"}
    assert broker.act("retry", [job.id, clear.id]) == []
    assert broker.act("retry", [job.id], secrets={"pin": "1111"}) == [job.id]
    assert json.loads(claim(broker)[0].body)["args"] == {
        "to": "ada",
        "token": SEALED,
        "pin": "1111",
    }


def test_a_secret_that_is_given_replaces_the_one_that_is_kept(broker, clock):
    """For instance because the one that is kept was wrong."""
    job = a_job(clock, body=body_of())
    broker.enqueue([job])
    end_all(broker, begun(failed("boom"), clock.now()))

    assert broker.act("retry", [job.id], secrets={"token": "right", "to": "eve"}) == [job.id]

    assert json.loads(claim(broker)[0].body)["args"] == {"to": "ada", "token": "right"}


def test_a_job_that_succeeded_keeps_none(broker, clock):
    jobs = [a_job(clock, body=body_of()), a_job(clock, body=body_of(), key="ada")]
    broker.enqueue(jobs)
    end_all(broker, begun(succeeded(), clock.now()))

    for job in jobs:
        assert b"hunter2" not in broker.get(job.id).body
        assert all(b"hunter2" not in (row.body or b"") for row in history_of(broker, job.id))


def test_the_span_begins_again_with_every_end(broker, clock):
    job = a_job(clock, body=body_of())
    broker.enqueue([job])
    end_all(broker, begun(failed("boom"), clock.now()))
    clock.advance(SPAN - 1)
    broker.act("retry", [job.id])
    clock.advance(2)
    prune(broker, clock)  # of a job that is to run nothing is taken
    [claimed] = claim(broker)
    assert json.loads(claimed.body)["args"]["token"] == SEALED
    broker.settle([(claimed, begun(failed("boom"), clock.now()))])
    clock.advance(SPAN - 1)
    prune(broker, clock)

    assert args_of(broker, job.id)["token"] == SEALED
    clock.advance(1)
    prune(broker, clock)
    assert args_of(broker, job.id)["token"] == "***"


def test_a_flow_goes_on_with_the_secrets_that_are_kept(broker, clock):
    flow = a_flow(clock, first=part(), last=part("first"))
    [job] = flow.named["last"]
    place = msgspec.json.decode(job.body)["flow"]
    body = msgspec.json.encode({**msgspec.json.decode(body_of()), "flow": place})
    flow.named["last"] = [msgspec.structs.replace(job, body=body)]
    flow.send(broker)
    end_all(broker, begun(failed("boom"), clock.now()))
    [first, last] = flow.ids("first", "last")
    assert broker.get(last).reason == "needs"
    assert args_of(broker, last)["token"] == SEALED

    assert broker.act("retry", [first]) == [first]

    end_all(broker, begun(succeeded(), clock.now()))
    [claimed] = claim(broker)
    assert (claimed.id, json.loads(claimed.body)["args"]["token"]) == (last, SEALED)


def test_a_flow_does_not_go_on_with_secrets_whose_span_is_over(broker, clock):
    flow = a_flow(clock, first=part(), last=part("first"))
    [job] = flow.named["last"]
    place = msgspec.json.decode(job.body)["flow"]
    body = msgspec.json.encode({**msgspec.json.decode(body_of()), "flow": place})
    flow.named["last"] = [msgspec.structs.replace(job, body=body)]
    flow.send(broker)
    end_all(broker, begun(failed("boom"), clock.now()))
    [first, last] = flow.ids("first", "last")
    clock.advance(SPAN)

    broker.act("retry", [first])

    assert broker.get(last).state is State.CANCELLED
