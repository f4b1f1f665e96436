"""The state of a flow: members merge into it, at once and fenced. Runs against every broker."""

from __future__ import annotations

import threading

import msgspec
import pytest

from penstock.broker.views import Note
from penstock.errors import Refused
from penstock.flows.state import MOST_STATE_BYTES, merged
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_worker,
    claim,
    claim_for,
    enqueue_and_claim,
    part,
    settle,
)


def with_state(flow, state):
    return flow._replace(flow=msgspec.structs.replace(flow.flow, state=msgspec.json.encode(state)))


def merge(broker, job, **patch):
    return broker.note(job, Note("state", "", msgspec.json.encode(patch)))


def state_of(broker, flow):
    return msgspec.json.decode(broker.flow(flow.flow.id).state)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    return request.param


def test_every_member_merges_into_the_same_state(broker, clock, fields):
    """G7, G13, G28: parameters and results are together, the same state throughout."""
    flow = with_state(
        a_flow(clock, check=part(**fields), reward=part("check", jobs=2, **fields)),
        {"user": 62, "rewards": {}},
    )
    flow.send(broker)
    [check] = claim(broker, limit=10)
    assert merge(broker, check, access=True)
    settle(broker, check, succeeded())

    for number, job in enumerate(claim(broker, limit=10)):
        assert merge(broker, job, rewards={f"platform-{number}": {"ok": True}})

    assert state_of(broker, flow) == {
        "user": 62,
        "access": True,
        "rewards": {"platform-0": {"ok": True}, "platform-1": {"ok": True}},
    }
    assert broker.notes(check.id) == []


def test_a_merge_stands_at_once_and_when_the_attempt_fails(broker, clock, fields):
    flow = a_flow(clock, only=part(**fields))
    flow.send(broker)
    [job] = claim(broker)

    assert merge(broker, job, half="done")
    assert state_of(broker, flow) == {"half": "done"}
    settle(broker, job, failed("error"))

    assert state_of(broker, flow) == {"half": "done"}


def test_a_stale_attempt_merges_nothing(broker, clock, fields):
    """G47: a worker whose lease expired cannot write."""
    flow = a_flow(clock, only=part(**fields))
    flow.send(broker)
    [late] = claim(broker)
    clock.advance(seconds=16)
    assert broker.recover() == 1
    [current] = claim(broker)

    assert not merge(broker, late, who="late")
    assert merge(broker, current, who="current")

    assert state_of(broker, flow) == {"who": "current"}


def test_a_job_that_is_in_no_flow_has_no_state(broker, clock):
    job = enqueue_and_claim(broker, clock)

    assert not merge(broker, job, a=1)
    assert broker.get(job.id).state is State.RUNNING


def test_members_that_merge_at_once_lose_nothing(broker, clock):
    flow = a_flow(clock, work=part(jobs=8))
    flow.send(broker)
    # Each of a worker of its own: those of one claim may be locked together.
    jobs = [claim(broker, worker=f"worker-{number}")[0] for number in range(8)]

    def write(number):
        for turn in range(5):
            assert merge(broker, jobs[number], results={f"{number}": {f"{turn}": turn}})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    turns = {f"{turn}": turn for turn in range(5)}
    assert state_of(broker, flow) == {"results": {f"{number}": turns for number in range(8)}}


def test_a_state_that_grows_too_large_is_refused_and_stays_as_it_was(broker, clock):
    flow = a_flow(clock, only=part())
    flow.send(broker)
    [job] = claim(broker)
    assert merge(broker, job, a=1)

    with pytest.raises(Refused, match="state of the flow takes"):
        merge(broker, job, text="x" * MOST_STATE_BYTES)

    assert state_of(broker, flow) == {"a": 1}
    assert settle(broker, job, succeeded())


def test_a_merge_does_not_hold_up_the_end_of_others(broker, clock):
    flow = a_flow(clock, work=part(jobs=2), last=part("work"))
    flow.send(broker)
    first, second = claim(broker, limit=2)

    assert settle(broker, first, succeeded())
    assert merge(broker, second, b=2)
    assert settle(broker, second, succeeded())

    [last] = claim_for(broker, a_worker(), limit=5)
    assert last.id in flow.ids("last")
    assert state_of(broker, flow) == {"b": 2}


@pytest.mark.parametrize(
    ("state", "patch", "after"),
    [
        (b'{"a":1}', b'{"b":2}', {"a": 1, "b": 2}),
        (b'{"a":{"x":1}}', b'{"a":{"y":2}}', {"a": {"x": 1, "y": 2}}),
        (b'{"a":{"x":{"p":1}}}', b'{"a":{"x":{"q":2}}}', {"a": {"x": {"p": 1, "q": 2}}}),
        (b'{"a":{"x":1}}', b'{"a":5}', {"a": 5}),
        (b'{"a":5}', b'{"a":{"x":1}}', {"a": {"x": 1}}),
        (b'{"a":[1,2]}', b'{"a":[3]}', {"a": [3]}),
        (b'{"a":1}', b'{"a":null}', {"a": None}),
        (b'{"a":null}', b'{"a": {"x":1}}', {"a": {"x": 1}}),
        (b'{"n":12345678901234567890123}', b"{}", {"n": 12345678901234567890123}),
    ],
)
def test_a_patch_goes_into_objects_and_takes_the_place_of_the_rest(state, patch, after):
    import json

    assert json.loads(merged(state, patch)) == after


def test_a_state_is_empty_again_after_its_own_time(broker, clock):
    """G44: whatever its jobs do; a merge begins its time anew, and finds nothing of before."""
    flow = with_state(a_flow(clock, check=part()), {"user": 62})
    flow = flow._replace(flow=msgspec.structs.replace(flow.flow, state_ttl=60.0))
    flow.send(broker)
    [check] = claim(broker)
    clock.advance(seconds=50)
    assert merge(broker, check, access=True)
    clock.advance(seconds=50)

    row = broker.flow(flow.flow.id)
    assert state_of(broker, flow) == {"user": 62, "access": True}
    assert (row.state_ttl, row.state_until) == (60.0, pytest.approx(clock.now() + 10))

    clock.advance(seconds=11)
    assert state_of(broker, flow) == {}
    assert merge(broker, check, rewards=1)
    assert state_of(broker, flow) == {"rewards": 1}

    settle(broker, check, succeeded())
    clock.advance(seconds=61)
    broker.prune(clock.now() - 86400)
    row = broker.flow(flow.flow.id)
    assert (row.state, row.state_until) == (b"{}", None)


def test_a_state_without_a_time_stays(broker, clock):
    flow = with_state(a_flow(clock, check=part()), {"user": 62})
    flow.send(broker)
    clock.advance(days=10)

    broker.prune(clock.now() - 86400)

    assert state_of(broker, flow) == {"user": 62}
