"""A body says which node its job is in; arguments that look like it say nothing."""

from __future__ import annotations

import msgspec
import pytest

from penstock.brokers.tables.flow_needs import place_of, places_of
from penstock.enqueue.ids import next_id, to_bytes
from penstock.flows.flow import Member, member_of

FLOW, NODE = next_id(), next_id()
PLACE = to_bytes(FLOW), to_bytes(NODE)
MEMBER = Member.of(FLOW, NODE)
OTHER = Member.of(next_id(), next_id())


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"args": {}, "flow": MEMBER}, PLACE),
        ({"flow": MEMBER, "args": {"n": 1}}, PLACE),
        ({"flow": MEMBER, "args": {"flow": OTHER}}, PLACE),
        ({"args": {"flow": OTHER}, "flow": MEMBER}, PLACE),
        ({"args": {"flow": OTHER}}, None),
        ({"args": {"text": '"flow":{}'}}, None),
        ({"args": {"text": '"flow":'}, "flow": MEMBER}, PLACE),
        ({"args": {}, "flow": {"at": "no ids"}}, None),
        ({"args": {}, "flow": {"at": "Ü"}}, None),
        ({"args": {}, "flow": None}, None),
        ({"args": {}}, None),
    ],
)
def test_the_bodys_own_word_counts(body, place):
    raw = msgspec.json.encode(body)

    assert place_of(raw) == place
    assert list(places_of([raw, raw])) in (
        [] if place is None else [(place, 2)],
        [] if place is None else [(place, 1), (place, 1)],
    )


def test_a_place_is_told_as_the_ids_that_it_was_made_of():
    read = member_of(msgspec.json.encode({"args": {}, "flow": MEMBER}))

    assert read is not None
    assert (read.id, read.node, read.flow_and_node) == (FLOW, NODE, PLACE)


@pytest.mark.parametrize("raw", [b"", b"{", b'"flow":', b'{"flow":', b'{"flow":[]}', b"\xff"])
def test_what_cannot_be_read_is_in_no_flow(raw):
    assert place_of(raw) is None
    assert list(places_of([raw])) == []


def test_many_bodies_are_counted_together():
    one = [msgspec.json.encode({"args": {"n": n}, "flow": MEMBER}) for n in range(100)]
    two = [msgspec.json.encode({"flow": OTHER, "args": {"n": n}}) for n in range(3)]
    counted = dict.fromkeys([PLACE, OTHER.flow_and_node], 0)

    for place, jobs in places_of([*one, *two, b'{"args":{}}']):
        counted[place] += jobs

    assert list(counted.values()) == [100, 3]
