"""Flows are found by their name and their properties. Runs against every broker."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import Refused
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_flow, end_all, part


def named(clock, name="access", **find):
    """A flow of one job under this name, found by these."""
    flow = a_flow(clock, only=part())
    return flow._replace(flow=msgspec.structs.replace(flow.flow, name=name, find=find))


def sent(broker, clock, name="access", **find):
    flow = named(clock, name, **find)
    flow.send(broker)
    clock.advance(seconds=1)
    return flow.flow.id


def found(broker, name=None, **find):
    return [flow.id for flow in broker.flows(name, find).flows]


def test_a_flow_is_found_by_its_property_newest_first(broker, clock):
    """G20, G21: find(flow, userId=62) returns it, whatever else is stored."""
    first = sent(broker, clock, user=62)
    sent(broker, clock, user=63)
    last = sent(broker, clock, user=62)
    sent(broker, clock, "other", user=62)

    assert found(broker, "access", user="62") == [last, first]
    assert found(broker, "access", user="64") == []
    assert found(broker, "nobody", user="62") == []


def test_a_flow_is_found_by_its_name_or_among_all(broker, clock):
    one = sent(broker, clock)
    unnamed = sent(broker, clock, "")
    two = sent(broker, clock)

    assert found(broker, "access") == [two, one]
    assert found(broker) == [two, unnamed, one]


def test_all_properties_must_be_as_asked(broker, clock):
    both = sent(broker, clock, user=62, tenant="a")
    sent(broker, clock, user=62, tenant="b")
    sent(broker, clock, user=63, tenant="a")

    assert found(broker, "access", user="62", tenant="a") == [both]
    assert found(broker, "access", user="62", tenant="c") == []
    assert found(broker, "access", user="62", guild="a") == []


def test_a_list_is_found_by_each_of_its_elements(broker, clock):
    """G57: lookup on array values."""
    flow = sent(broker, clock, role=["admin", 7, "admin"])

    assert found(broker, "access", role="admin") == [flow]
    assert found(broker, "access", role="7") == [flow]
    assert found(broker, "access", role="admin, 7") == []


def test_what_was_found_tells_all_of_the_flow(broker, clock):
    flow_id = sent(broker, clock, user=62, role=["admin"], paid=True, share=0.5)

    [row] = broker.flows("access", {"user": "62"}).flows

    assert row == broker.flow(flow_id)
    assert row.find == {"user": 62, "role": ["admin"], "paid": True, "share": 0.5}
    assert row.name == "access"
    assert [node.jobs_left for node in row.nodes] == [1]


def test_pages_go_on_where_the_last_one_ended(broker, clock):
    ids = [sent(broker, clock, user=62) for _ in range(5)]

    seen, after = [], None
    while True:
        page = broker.flows("access", {"user": "62"}, after, 2)
        seen += [flow.id for flow in page.flows]
        after = page.after
        if after is None:
            break

    assert seen == ids[::-1]


def test_long_and_strange_values_are_told_apart(broker, clock):
    long = "x" * 5000
    first = sent(broker, clock, user=long + "a")
    second = sent(broker, clock, user=long + "b")
    quoted = sent(broker, clock, user='it\'s; "so" \N{SNOWMAN}')

    assert found(broker, "access", user=long + "a") == [first]
    assert found(broker, "access", user=long + "b") == [second]
    assert found(broker, "access", user='it\'s; "so" \N{SNOWMAN}') == [quoted]


@pytest.mark.parametrize(
    "find", [{"user": "a\x00b"}, {"": "a"}, {"user": {"a": 1}}, {"user": [[1]]}, {"user": "\ud800"}]
)
def test_what_could_not_be_found_again_is_refused(broker, clock, find):
    flow = named(clock, **find)

    with pytest.raises(Refused):
        flow.send(broker)

    assert found(broker) == []


def test_the_same_flow_sent_again_is_found_once(broker, clock):
    flow = named(clock, user=62)
    flow.send(broker)
    flow.send(broker)

    assert found(broker, "access", user="62") == [flow.flow.id]


def test_a_flow_that_ended_is_found_until_it_is_pruned(broker, clock):
    """G56: lookups go with the flow."""
    flow = sent(broker, clock, user=62)
    end_all(broker, succeeded())
    assert found(broker, "access", user="62") == [flow]

    broker.prune(clock.now() - 1)
    assert found(broker, "access", user="62") == [flow]
    clock.advance(seconds=60)
    broker.prune(clock.now() - 1)

    assert found(broker, "access", user="62") == []
    assert found(broker) == []
