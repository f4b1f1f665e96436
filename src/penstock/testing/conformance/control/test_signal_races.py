"""A signal and something else at the same moment: one of the two stands, and all of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.protocol import Broker
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import State, succeeded
from penstock.testing.conformance.core.test_races import at_once
from penstock.testing.conformance.factories import (
    a_flow,
    claim,
    history_of,
    ids_of,
    part,
    settle,
)

ROUNDS = 20
NAME = "approve-62"
WAITING, READY, SUCCEEDED, CANCELLED = State.WAITING, State.READY, State.SUCCEEDED, State.CANCELLED


def an_approval(clock: Any, **fields: Any) -> Any:
    return a_flow(clock, wait=part(task=WAIT_TASK, tags={TAG: NAME}, **fields), ship=part("wait"))


def check_one_end(broker: Broker, flow: Any, *, signalled: bool) -> None:
    """The wait ended once, as the caller was told, and what needs it follows from that."""
    [wait] = flow.ids("wait")
    assert len(history_of(broker, wait)) == 1
    assert flow.states(broker, "wait") == [SUCCEEDED if signalled else CANCELLED]
    assert flow.states(broker, "ship") == [READY if signalled else CANCELLED]
    jobs = claim(broker, limit=10)
    assert ids_of(jobs) == (flow.ids("ship") if signalled else [])
    assert all(settle(broker, job, succeeded()) for job in jobs)
    row = broker.flow(flow.flow.id)
    assert row is not None
    assert row.ended_at is not None
    assert all(not count.total for count in broker.count())


def test_of_many_signals_one_is_told_that_it_ended_the_wait(broker, clock):
    for _ in range(ROUNDS):
        flow, told = an_approval(clock), {}
        flow.send(broker)

        def signal(number, told=told):
            told[number] = broker.signal(NAME, b"%d" % number)

        at_once(8, signal)

        [winner] = [number for number, ended in told.items() if ended]
        assert told[winner] == flow.ids("wait")
        assert [output.result for output in broker.outputs(flow.nodes["wait"])] == [b"%d" % winner]
        check_one_end(broker, flow, signalled=True)


@pytest.mark.parametrize("verb", ["cancel", "expiry"])
def test_a_signal_against_another_end(broker, clock, verb):
    for _ in range(ROUNDS):
        flow, told = an_approval(clock, expires_at=clock.now() + 60), {}
        flow.send(broker)

        def act(number, flow=flow, told=told):
            if number:
                told["signal"] = broker.signal(NAME, b"1")
            elif verb == "cancel":
                told["other"] = broker.act("cancel", flow.ids("wait"))
            else:
                clock.advance(seconds=60)
                broker.recover()

        at_once(2, act)

        if verb == "cancel":
            assert bool(told["signal"]) != bool(told["other"])
        check_one_end(broker, flow, signalled=bool(told["signal"]))


def test_a_signal_against_the_enqueue_of_the_flow(broker, clock):
    """Too early it is told that it ended nobody, and the wait goes on."""
    for _ in range(ROUNDS):
        flow, told = an_approval(clock), {}

        def act(number, flow=flow, told=told):
            if number:
                told[number] = broker.signal(NAME, b"1")
            else:
                flow.send(broker)

        at_once(4, act)

        [ended] = [ended for ended in told.values() if ended] or [None]
        if ended is None:
            assert flow.states(broker, "wait") == flow.states(broker, "ship") == [WAITING]
            ended = broker.signal(NAME, b"1")
        assert ended == flow.ids("wait")
        check_one_end(broker, flow, signalled=True)


def test_a_signal_against_the_end_of_the_other_need(broker, clock):
    """G26: what needs both is freed once, whichever was the last."""
    for _ in range(ROUNDS):
        flow = a_flow(
            clock,
            wait=part(task=WAIT_TASK, tags={TAG: NAME}),
            work=part(),
            ship=part("wait", "work"),
        )
        flow.send(broker)
        [job] = claim(broker)

        def act(number, job=job):
            if number:
                assert broker.signal(NAME, b"1")
            else:
                assert settle(broker, job, succeeded(b"2"))

        at_once(2, act)

        assert ids_of(ships := claim(broker, limit=10)) == flow.ids("ship")
        assert all(settle(broker, ship, succeeded()) for ship in ships)


def test_a_signal_for_many_flows_while_each_of_them_is_cancelled(broker, clock):
    """Whole flows, from the last to the first: nobody waits for the other for ever."""
    for _ in range(ROUNDS // 4):
        flows = [an_approval(clock) for _ in range(10)]
        for flow in flows:
            flow.send(broker)

        def act(number, flows=flows):
            if not number:
                broker.signal(NAME, b"1")
            else:
                for flow in reversed(flows):
                    broker.act("cancel", [*flow.ids("ship"), *flow.ids("wait")])

        at_once(3, act)

        assert claim(broker, limit=100) == []
        for flow in flows:
            [wait], [ship] = flow.states(broker, "wait"), flow.states(broker, "ship")
            assert ship is CANCELLED
            assert wait in {SUCCEEDED, CANCELLED}
            assert broker.flow(flow.flow.id).ended_at is not None
