"""Gifts: what the jobs of a node hand on to those that need it. Runs against every broker."""

from __future__ import annotations

import pytest

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import a_flow, an_id, claim, part, settle


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def told(broker, node):
    return [(output.job, output.state, output.result) for output in broker.outputs(node)]


def test_a_single_job_hands_on_its_result(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    [need] = claim(broker)
    assert told(broker, flow.nodes["need"]) == [(need.id, State.RUNNING, None)]

    settle(broker, need, succeeded(b'{"a":[1]}'))

    assert told(broker, flow.nodes["need"]) == [(need.id, State.SUCCEEDED, b'{"a":[1]}')]


def test_a_map_hands_on_its_results_in_order(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=300, **fields), last=part("work", **fields))
    flow.send(broker)
    numbers = {job_id: b"%d" % number for number, job_id in enumerate(flow.ids("work"))}
    jobs = claim(broker, limit=300)
    broker.settle([(job, succeeded(numbers[job.id])) for job in reversed(jobs)])

    outputs = broker.outputs(flow.nodes["work"])

    assert [output.job for output in outputs] == flow.ids("work")
    assert [output.result for output in outputs] == list(numbers.values())


def test_who_did_not_succeed_hands_on_nothing_but_its_state(broker, clock, fields):
    flow = a_flow(
        clock, work=part(jobs=4, **fields), last=part("work", on_failure="continue", **fields)
    )
    flow.send(broker)
    ids = flow.ids("work")
    outcomes = {ids[0]: succeeded(b"1"), ids[1]: failed("boom"), ids[2]: succeeded()}
    broker.act("cancel", ids[3:])
    broker.settle([(job, outcomes[job.id]) for job in claim(broker, limit=3)])

    assert told(broker, flow.nodes["work"]) == [
        (ids[0], State.SUCCEEDED, b"1"),
        (ids[1], State.FAILED, None),
        (ids[2], State.SUCCEEDED, None),
        (ids[3], State.CANCELLED, None),
    ]


def test_a_job_that_is_gone_is_told_of(broker, clock, fields):
    """G58: between those that are there, each with its own id."""
    flow = a_flow(clock, work=part(jobs=2, **fields), last=part("work", **fields))
    flow.send(broker)
    first, second = claim(broker, limit=2)
    broker.settle([(first, succeeded(b"1")), (second, succeeded(b"2"))])

    broker.act("delete", [first.id])

    assert told(broker, flow.nodes["work"]) == [
        (first.id, None, None),
        (second.id, State.SUCCEEDED, b"2"),
    ]


def test_a_node_that_is_not_known_has_none(broker, clock):
    assert broker.outputs(an_id(clock)) == []
