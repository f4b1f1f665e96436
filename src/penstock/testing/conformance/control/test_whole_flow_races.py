"""Whole flows under way: looked after while workers claim and settle. Runs against every broker."""

from __future__ import annotations

import threading

import pytest

from penstock.job import State, put_back, succeeded
from penstock.testing.conformance.factories import a_flow, a_worker, claim, end_all, part

ENDED = {State.SUCCEEDED, State.CANCELLED}


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    return request.param


def at_once(*acts):
    """Run these at the same time; what one raises is raised here."""
    raised = []

    def run(act):
        try:
            act()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def working(broker, name, turns=12):
    """A worker that claims and settles, and stops what it is told to stop."""

    def work():
        for _ in range(turns):
            jobs = claim(broker, limit=7, worker=name)
            told = broker.renew([a_worker(name)]).cancelled
            broker.settle(
                [(job, put_back("cancelled") if job.id in told else succeeded()) for job in jobs]
            )

    return work


def drained(broker):
    while end_all(broker, succeeded(), limit=500):
        pass


def test_cancel_beside_workers_ends_every_job_once(broker, clock, fields):
    flow = a_flow(
        clock,
        split=part(**fields),
        work=part("split", jobs=150, **fields),
        join=part("work", **fields),
    )
    flow.send(broker)
    end_all(broker, succeeded())

    at_once(
        working(broker, "worker-1"),
        working(broker, "worker-2"),
        lambda: broker.act("cancel", (), flow=flow.flow.id),
    )

    states = [*flow.states(broker, "work"), *flow.states(broker, "join")]
    assert set(states) <= ENDED, states
    row = broker.flow(flow.flow.id)
    assert row.ended_at is not None
    assert [node.jobs_left for node in row.nodes] == [0, 0, 0]
    assert sum(node.bad for node in row.nodes) == states.count(State.CANCELLED)
    assert sum(count.total for count in broker.count()) == 0


def test_delete_beside_workers_leaves_nothing(broker, clock, fields):
    """G56: no resurrection, whatever is under way."""
    flow = a_flow(clock, work=part(jobs=150, **fields), join=part("work", **fields))
    flow.send(broker)

    at_once(
        working(broker, "worker-1"),
        working(broker, "worker-2"),
        lambda: broker.act("delete", (), flow=flow.flow.id),
    )
    drained(broker)

    assert broker.flow(flow.flow.id) is None
    assert {broker.get(job_id) for job_id in flow.ids("work", "join")} == {None}
    assert sum(count.total for count in broker.count()) == 0


def test_cancel_and_retry_of_one_flow_at_once_still_lets_it_end(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=60, **fields), join=part("work", **fields))
    flow.send(broker)

    at_once(
        working(broker, "worker-1"),
        lambda: broker.act("cancel", (), flow=flow.flow.id),
        lambda: broker.act("retry", (), flow=flow.flow.id),
        lambda: broker.act("retry", (), flow=flow.flow.id),
    )
    told = broker.renew([a_worker("worker-1")]).cancelled
    assert told == frozenset()
    drained(broker)

    row = broker.flow(flow.flow.id)
    assert row.ended_at is not None
    assert [node.jobs_left for node in row.nodes] == [0, 0]
    broker.act("retry", (), flow=flow.flow.id)
    drained(broker)
    assert [node.bad for node in broker.flow(flow.flow.id).nodes] == [0, 0]
