"""The history of a flow as a whole: stored, ended, looked after. Runs against every broker."""

from __future__ import annotations

import msgspec
import pytest

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import a_flow, a_job, claim, end_all, part, settle


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    return request.param


def said(broker, flow_id):
    """What the history says of the flow: when, and what."""
    return [
        (event.at, msgspec.json.decode(event.data))
        for event in broker.history(job=flow_id)
        if event.kind == "flow"
    ]


def test_a_flow_is_queued_once_and_ends_once(broker, clock, fields):
    """G50: that it ended is set at the flow's end, always."""
    flow = a_flow(clock, work=part(jobs=3, **fields), join=part("work", **fields))
    named = msgspec.structs.replace(flow.flow, name="access", find={"user": 62})
    queued_at = clock.now()
    broker.enqueue(flow.jobs, flow=named)
    broker.enqueue(flow.jobs, flow=named)
    clock.advance(seconds=5)
    end_all(broker, succeeded())
    assert len(said(broker, named.id)) == 1
    end_all(broker, succeeded())

    about = {"jobs": 4, "name": "access", "find": {"user": 62}}
    assert said(broker, named.id) == [
        (queued_at, {"says": "queued", **about}),
        (clock.now(), {"says": "ended", "bad": 0, **about}),
    ]


def test_those_that_ended_without_success_are_counted(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=3, **fields), join=part("work", **fields))
    flow.send(broker)
    good, *bad = claim(broker, limit=3)
    settle(broker, good, succeeded())
    broker.settle([(job, failed("error")) for job in bad])

    assert said(broker, flow.flow.id)[-1][1] == {"says": "ended", "jobs": 4, "bad": 3}


def test_a_flow_that_is_retried_ends_again(broker, clock, fields):
    flow = a_flow(clock, work=part(**fields), join=part("work", **fields))
    flow.send(broker)
    end_all(broker, failed("error"))
    broker.act("retry", flow.ids("work"))
    end_all(broker, succeeded())
    end_all(broker, succeeded())

    events = [event for _, event in said(broker, flow.flow.id)]
    assert [(event["says"], event.get("bad")) for event in events] == [
        ("queued", None),
        ("ended", 2),
        ("ended", 0),
    ]


def test_what_a_job_spawned_is_a_flow_of_its_own_or_more_of_the_one_it_is_in(broker, clock):
    alone = a_job(clock)
    broker.enqueue([alone])
    [job] = claim(broker)
    more = a_flow(clock, one=part(), two=part("one"))
    settle(broker, job, more.spawned_by(succeeded()))
    assert [event["says"] for _, event in said(broker, more.flow.id)] == ["queued"]

    [job] = claim(broker)
    grown = a_flow(clock, more.flow.id, three=part())
    settle(broker, job, grown.spawned_by(succeeded()))
    for _ in range(2):
        end_all(broker, succeeded())

    events = [event for _, event in said(broker, more.flow.id)]
    assert [(event["says"], event["jobs"]) for event in events] == [("queued", 2), ("ended", 3)]


def test_plain_jobs_leave_no_such_event(broker, clock, fields):
    broker.enqueue([a_job(clock, **fields)])
    end_all(broker, succeeded())

    assert [event.kind for event in broker.history()] == ["attempt"]


def test_the_events_are_read_in_the_order_of_commits(broker, clock, fields):
    flow = a_flow(clock, only=part(**fields))
    flow.send(broker)
    end_all(broker, succeeded())

    events = broker.history()

    assert sorted(event.position for event in events) == [event.position for event in events]
    assert events[0].kind == "flow"
    assert {event.kind for event in events} == {"flow", "attempt"}
    assert [event.state for event in events if event.kind == "attempt"] == [State.SUCCEEDED]
