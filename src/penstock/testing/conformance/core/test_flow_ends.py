"""Every end of a job of a flow counts, and nothing else does. Runs against every broker."""

from __future__ import annotations

import pytest

from penstock.job import State, failed, lapsed, put_back, succeeded, try_again
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
SUCCEEDED, FAILED, CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def fail(broker, flow, clock):
    end_all(broker, failed("boom"))


def cancel_ready(broker, flow, clock):
    broker.act("cancel", flow.ids("need"))


def cancel_running(broker, flow, clock):
    [job] = claim(broker)
    broker.act("cancel", flow.ids("need"))
    settle(broker, job, put_back("cancelled"))


def delete_ready(broker, flow, clock):
    assert broker.act("delete", flow.ids("need")) == flow.ids("need")


def crash(broker, flow, clock):
    for _ in range(3):
        clock.advance(seconds=5)  # it waits longer each time
        [job] = claim(broker)
        settle(broker, job, lapsed())


def fail_unkept(broker, flow, clock):
    [job] = claim(broker)
    outcome = failed("boom")
    settle(broker, job, type(outcome)(FAILED, "error", error="boom", failures=1, keep=False))


BAD_ENDS = [fail, cancel_ready, cancel_running, delete_ready, crash, fail_unkept]


@pytest.mark.parametrize("end", BAD_ENDS, ids=lambda end: end.__name__)
def test_a_need_that_did_not_succeed_cancels_all_that_need_it(broker, clock, fields, end):
    flow = a_flow(
        clock,
        need=part(**fields),
        work=part("need", jobs=3, **fields),
        last=part("work", **fields),
    )
    flow.send(broker)

    end(broker, flow, clock)

    assert claim(broker) == []
    for job_id in flow.ids("work", "last"):
        job = broker.get(job_id)
        assert (job.state, job.reason, job.ended_at) == (CANCELLED, "needs", clock.now())
        [event] = [event for event in history_of(broker, job_id) if event.kind == "cancel"]
        assert (event.state, event.reason) == (CANCELLED, "needs")
    assert broker.flow(flow.flow.id).ended_at == clock.now()


@pytest.mark.parametrize("end", BAD_ENDS, ids=lambda end: end.__name__)
def test_where_it_goes_on_what_needs_it_runs(broker, clock, fields, end):
    flow = a_flow(clock, need=part(**fields), last=part("need", on_failure="continue", **fields))
    flow.send(broker)

    end(broker, flow, clock)

    assert ids_of(claim(broker)) == flow.ids("last")
    assert flow.row(broker, "need").bad == 1


def test_a_need_that_expired_counts_as_ended(broker, clock):
    flow = a_flow(clock, need=part(expires_at=clock.now() + 10), last=part("need"))
    flow.send(broker)
    clock.advance(seconds=11)

    broker.recover()

    assert broker.get(flow.ids("need")[0]).reason == "expired"
    assert broker.get(flow.ids("last")[0]).reason == "needs"


def test_a_waiting_job_expires_too(broker, clock):
    flow = a_flow(
        clock, need=part(), middle=part("need", expires_at=clock.now() + 10), last=part("middle")
    )
    flow.send(broker)
    [need] = claim(broker)
    clock.advance(seconds=11)

    broker.recover()

    assert broker.get(flow.ids("middle")[0]).reason == "expired"
    assert broker.get(flow.ids("last")[0]).reason == "needs"
    assert settle(broker, need, succeeded())
    assert claim(broker) == []


def test_a_dead_worker_ends_what_it_crashed_too_often(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)

    for number in range(3):
        assert len(claim(broker, worker=f"worker-{number}")) == 1
        clock.advance(seconds=16)
        broker.recover()
        clock.advance(seconds=5)  # it waits longer each time

    assert flow.states(broker, "need") == [FAILED]
    assert flow.states(broker, "last") == [CANCELLED]


def test_one_bad_job_of_a_map_is_enough_but_all_are_waited_for(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=3, **fields), last=part("work", **fields))
    flow.send(broker)
    first, second, third = claim(broker, limit=3)

    settle(broker, first, failed("boom"))
    settle(broker, second, succeeded())
    assert flow.states(broker, "last") == [WAITING]
    settle(broker, third, succeeded())

    assert flow.states(broker, "last") == [CANCELLED]


def test_the_other_needs_are_waited_for_too(broker, clock, fields):
    flow = a_flow(
        clock, left=part(**fields), right=part(**fields), last=part("left", "right", **fields)
    )
    flow.send(broker)
    first, second = claim(broker, limit=2)

    settle(broker, first, failed("boom"))
    assert flow.states(broker, "last") == [WAITING]
    settle(broker, second, succeeded())

    assert flow.states(broker, "last") == [CANCELLED]


def test_who_does_not_need_it_runs_on(broker, clock, fields):
    flow = a_flow(
        clock,
        bad=part(**fields),
        lost=part("bad", **fields),
        good=part(**fields),
        after=part("good", **fields),
        last=part("lost", "after", on_failure="continue", **fields),
    )
    flow.send(broker)
    for job in claim(broker, limit=2):
        bad = job.id in flow.ids("bad")
        settle(broker, job, failed("boom") if bad else succeeded())

    assert flow.states(broker, "lost") == [CANCELLED]
    assert end_all(broker, succeeded()) == flow.ids("after")

    assert ids_of(claim(broker)) == flow.ids("last")


def test_a_chain_of_a_thousand_is_cancelled_to_its_end(broker, clock):
    parts = {f"s{number}": part(f"s{number - 1}") for number in range(1, 1200)}
    flow = a_flow(clock, s0=part(), **parts)
    flow.send(broker)

    end_all(broker, failed("boom"))

    assert flow.states(broker, "s1199") == [CANCELLED]
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_an_attempt_that_leads_back_counts_nothing(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)

    for outcome in (put_back("limit"), try_again("boom", clock.now()), lapsed()):
        [job] = claim(broker)
        assert settle(broker, job, outcome)

    row = flow.row(broker, "need")
    assert (row.jobs_left, row.bad) == (1, 0)
    assert flow.states(broker, "last") == [WAITING]


def test_a_stale_settlement_counts_nothing(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    [late] = claim(broker)
    clock.advance(seconds=16)
    assert broker.recover() == 1
    [current] = claim(broker, worker="worker-2")

    assert not settle(broker, late, succeeded())
    assert flow.states(broker, "last") == [WAITING]

    assert settle(broker, current, succeeded())
    assert not settle(broker, current, succeeded())
    assert ids_of(claim(broker, limit=5)) == flow.ids("last")


def test_deleting_what_ended_counts_nothing(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=2, **fields), last=part("work", **fields))
    flow.send(broker)
    first, second = claim(broker, limit=2)
    settle(broker, first, succeeded())

    assert broker.act("delete", [first.id]) == [first.id]

    assert flow.row(broker, "work").jobs_left == 1
    settle(broker, second, succeeded())
    assert flow.states(broker, "last") == [READY]


def test_a_waiting_job_is_cancelled_at_once(broker, clock, fields):
    flow = a_flow(
        clock, need=part(**fields), middle=part("need", **fields), last=part("middle", **fields)
    )
    flow.send(broker)

    assert broker.act("cancel", flow.ids("middle"), "ada", "enough") == flow.ids("middle")

    assert broker.get(flow.ids("middle")[0]).reason == "cancelled"
    assert broker.get(flow.ids("last")[0]).reason == "needs"
    assert end_all(broker, succeeded()) == flow.ids("need")
    assert claim(broker) == []


def test_a_flow_can_be_cancelled_whole(broker, clock, fields):
    flow = a_flow(
        clock, need=part(jobs=2, **fields), middle=part("need", **fields), last=part("middle")
    )
    flow.send(broker)
    ids = flow.ids("need", "middle", "last")

    assert sorted(broker.act("cancel", ids)) == sorted(ids)

    assert {broker.get(job_id).reason for job_id in ids} == {"cancelled"}
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_a_waiting_job_can_be_deleted(broker, clock, fields):
    flow = a_flow(
        clock, need=part(**fields), middle=part("need", **fields), last=part("middle", **fields)
    )
    flow.send(broker)

    assert broker.act("delete", flow.ids("middle")) == flow.ids("middle")

    assert broker.get(flow.ids("middle")[0]) is None
    assert flow.states(broker, "last") == [CANCELLED]
    assert end_all(broker, succeeded()) == flow.ids("need")
    assert claim(broker) == []


def test_one_waiting_job_of_a_map_can_be_cancelled(broker, clock, fields):
    flow = a_flow(
        clock,
        need=part(**fields),
        work=part("need", jobs=3, **fields),
        last=part("work", on_failure="continue", **fields),
    )
    flow.send(broker)

    broker.act("cancel", flow.ids("work")[1:2])
    end_all(broker, succeeded())

    kept = flow.ids("work")
    assert end_all(broker, succeeded()) == sorted([kept[0], kept[2]])
    assert ids_of(claim(broker)) == flow.ids("last")
