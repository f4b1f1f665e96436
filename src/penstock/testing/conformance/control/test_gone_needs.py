"""Needs that are gone: nobody waits for the retry of a job that is not there any more.

Runs against every broker.
"""

from __future__ import annotations

import msgspec
import pytest

from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import a_flow, claim, end_all, part, settle

WAITING, READY, CANCELLED = State.WAITING, State.READY, State.CANCELLED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    return request.param


def total(broker):
    return sum(count.total for count in broker.count())


def broken(broker, clock, fields, jobs=1):
    """Fetch failed, so that clean and report were cancelled."""
    flow = a_flow(
        clock,
        fetch=part(jobs=jobs, **fields),
        clean=part("fetch", **fields),
        report=part("clean", **fields),
    )
    flow.send(broker)
    end_all(broker, failed("error"))
    assert flow.states(broker, "clean") == flow.states(broker, "report") == [CANCELLED]
    return flow


@pytest.mark.parametrize("name", ["clean", "report"])
def test_retry_of_one_whose_need_was_deleted_is_refused(broker, clock, fields, name):
    flow = broken(broker, clock, fields)
    broker.act("delete", flow.ids("fetch"))

    assert broker.act("retry", flow.ids(name)) == []

    assert flow.states(broker, name) == [CANCELLED]
    assert total(broker) == 0


def test_retry_of_the_whole_flow_leaves_those_alone(broker, clock, fields):
    flow = broken(broker, clock, fields)
    broker.act("delete", flow.ids("fetch"))

    assert broker.act("retry", (), flow=flow.flow.id) == []
    assert total(broker) == 0


def test_what_can_be_retried_decides_again_for_the_rest(broker, clock, fields):
    flow = broken(broker, clock, fields, jobs=3)
    broker.act("delete", flow.ids("fetch")[:1])

    broker.act("retry", (), flow=flow.flow.id)

    assert flow.states(broker, "clean") == [WAITING]
    assert end_all(broker, succeeded()) == sorted(flow.ids("fetch")[1:])
    assert flow.states(broker, "clean") == flow.states(broker, "report") == [CANCELLED]
    assert total(broker) == 0


def test_one_that_waits_is_decided_when_its_need_is_deleted(broker, clock, fields):
    flow = broken(broker, clock, fields)
    assert broker.act("retry", flow.ids("clean")) == flow.ids("clean")
    assert flow.states(broker, "clean") == flow.states(broker, "report") == [WAITING]

    broker.act("delete", flow.ids("fetch"))

    assert flow.states(broker, "clean") == flow.states(broker, "report") == [CANCELLED]
    assert total(broker) == 0
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_one_that_waits_is_decided_when_its_need_is_pruned(broker, clock, fields):
    flow = broken(broker, clock, fields)
    clock.advance(seconds=60)
    broker.act("retry", flow.ids("clean"))

    broker.prune(clock.now() - 1)

    assert flow.states(broker, "clean") == flow.states(broker, "report") == [CANCELLED]
    assert total(broker) == 0


def test_one_that_goes_on_without_runs_when_its_need_is_deleted(broker, clock, fields):
    flow = a_flow(
        clock,
        fetch=part(**fields),
        clean=part("fetch", **fields),
        report=part("clean", on_failure="continue", **fields),
    )
    flow.send(broker)
    [fetch] = claim(broker)
    settle(broker, fetch, failed("error"))
    assert flow.states(broker, "report") == [READY]
    broker.act("delete", flow.ids("fetch"))

    assert broker.act("retry", flow.ids("clean")) == []
    assert end_all(broker, succeeded()) == flow.ids("report")
    assert total(broker) == 0


def test_a_need_that_failed_by_itself_can_be_retried_whatever_it_needed(broker, clock, fields):
    flow = a_flow(
        clock,
        fetch=part(**fields),
        clean=part("fetch", on_failure="continue", **fields),
        report=part("clean", **fields),
    )
    flow.send(broker)
    end_all(broker, failed("error"))
    end_all(broker, failed("error"))
    broker.act("delete", flow.ids("fetch"))

    assert broker.act("retry", flow.ids("report")) == flow.ids("report")
    assert flow.states(broker, "report") == [WAITING]
    assert broker.act("retry", flow.ids("clean")) == flow.ids("clean")

    assert end_all(broker, succeeded()) == flow.ids("clean")
    assert end_all(broker, succeeded()) == flow.ids("report")


def test_a_need_that_was_not_kept_is_gone_as_well(broker, clock, fields):
    flow = a_flow(clock, fetch=part(**fields), clean=part("fetch", **fields))
    flow.send(broker)
    [fetch] = claim(broker)
    settle(broker, fetch, msgspec.structs.replace(failed("error"), keep=False))

    assert broker.act("retry", flow.ids("clean")) == []
    assert total(broker) == 0
