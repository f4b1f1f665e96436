"""Retry in a flow: what was cancelled because of a job waits for it again, on every broker."""

from __future__ import annotations

import pytest

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    claim,
    end_all,
    history_of,
    ids_of,
    part,
    settle,
)

WAITING, READY = State.WAITING, State.READY
SUCCEEDED, CANCELLED = State.SUCCEEDED, State.CANCELLED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_retry_revives_what_was_cancelled_because_of_it(broker, clock, fields):
    flow = a_flow(
        clock,
        need=part(**fields),
        work=part("need", jobs=3, **fields),
        last=part("work", **fields),
    )
    flow.send(broker)
    end_all(broker, failed("boom"))
    clock.advance(seconds=5)

    assert broker.act("retry", flow.ids("need"), "ada", "fixed") == flow.ids("need")

    assert flow.states(broker, "need") == [READY]
    assert flow.states(broker, "work") == [WAITING] * 3
    assert flow.states(broker, "last") == [WAITING]
    assert broker.get(flow.ids("last")[0]).reason is None
    kinds = [event.kind for event in history_of(broker, flow.ids("last")[0])]
    assert [kind for kind in kinds if kind != "flow"] == ["cancel", "retry"]
    assert broker.flow(flow.flow.id).ended_at is None
    assert [
        (row.needs_left, row.jobs_left, row.bad) for row in broker.flow(flow.flow.id).nodes
    ] == [
        (0, 1, 0),
        (1, 3, 0),
        (1, 1, 0),
    ]

    for name in ("need", "work", "last"):
        assert end_all(broker, succeeded()) == sorted(flow.ids(name))
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_a_retried_need_that_fails_again_cancels_again(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))
    broker.act("retry", flow.ids("need"))

    end_all(broker, failed("boom"))

    assert broker.get(flow.ids("last")[0]).reason == "needs"
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_with_two_bad_needs_one_retry_is_not_enough(broker, clock, fields):
    flow = a_flow(
        clock, left=part(**fields), right=part(**fields), last=part("left", "right", **fields)
    )
    flow.send(broker)
    end_all(broker, failed("boom"))

    broker.act("retry", flow.ids("left"))
    assert flow.states(broker, "last") == [WAITING]
    end_all(broker, succeeded())
    assert flow.states(broker, "last") == [CANCELLED]
    broker.act("retry", flow.ids("right"))
    end_all(broker, succeeded())

    assert ids_of(claim(broker)) == flow.ids("last")


def test_a_need_retried_before_the_others_ended_is_waited_for_again(broker, clock, fields):
    flow = a_flow(
        clock, left=part(**fields), right=part(**fields), last=part("left", "right", **fields)
    )
    flow.send(broker)
    first, second = claim(broker, limit=2)
    settle(broker, first, failed("boom"))
    assert flow.row(broker, "last").needs_left == 1

    broker.act("retry", [first.id])

    assert flow.row(broker, "last").needs_left == 2
    settle(broker, second, succeeded())
    assert flow.states(broker, "last") == [WAITING]
    end_all(broker, succeeded())
    assert flow.states(broker, "last") == [READY]


def test_a_job_cancelled_by_a_need_waits_when_it_is_retried(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))

    assert broker.act("retry", flow.ids("last")) == flow.ids("last")

    assert flow.states(broker, "last") == [WAITING]
    assert flow.row(broker, "last").needs_left == 1
    assert claim(broker) == []
    broker.act("retry", flow.ids("need"))
    assert flow.row(broker, "last").needs_left == 1
    end_all(broker, succeeded())
    assert ids_of(claim(broker)) == flow.ids("last")


@pytest.mark.parametrize("names", [("need", "last"), ("last", "need")])
def test_both_can_be_retried_in_one_call(broker, clock, fields, names):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))

    assert broker.act("retry", flow.ids(*names)) == flow.ids(*names)

    kinds = [event.kind for event in history_of(broker, flow.ids("last")[0])]
    assert [kind for kind in kinds if kind != "flow"] == ["cancel", "retry"]
    assert end_all(broker, succeeded()) == flow.ids("need")
    assert end_all(broker, succeeded()) == flow.ids("last")


def test_a_retried_need_revives_the_rest_of_a_map(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), work=part("need", jobs=3, **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))
    broker.act("retry", flow.ids("work")[:1])
    assert flow.states(broker, "work") == [WAITING, CANCELLED, CANCELLED]

    broker.act("retry", flow.ids("need"))

    assert flow.states(broker, "work") == [WAITING] * 3
    end_all(broker, succeeded())
    assert end_all(broker, succeeded()) == sorted(flow.ids("work"))
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_a_waiting_job_that_was_cancelled_by_hand_waits_again(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    broker.act("cancel", flow.ids("last"))

    assert broker.act("retry", flow.ids("last")) == flow.ids("last")

    assert flow.states(broker, "last") == [WAITING]
    end_all(broker, succeeded())
    assert ids_of(claim(broker)) == flow.ids("last")


def test_what_was_cancelled_by_hand_is_not_revived_by_a_need(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    broker.act("cancel", flow.ids("last"))
    end_all(broker, failed("boom"))

    broker.act("retry", flow.ids("need"))
    end_all(broker, succeeded())

    assert flow.states(broker, "last") == [CANCELLED]
    assert claim(broker) == []
    broker.act("retry", flow.ids("last"))
    assert ids_of(claim(broker)) == flow.ids("last")


def test_what_ran_in_spite_of_it_is_left_alone_by_a_retry(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", on_failure="continue", **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))
    end_all(broker, succeeded(b"1"))

    broker.act("retry", flow.ids("need"))
    end_all(broker, succeeded())

    assert flow.states(broker, "last") == [SUCCEEDED]
    assert claim(broker) == []
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_retry_of_a_job_that_waits_changes_nothing(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)

    assert broker.act("retry", flow.ids("last")) == []
