"""A body says which node its job is in; arguments that look like it say nothing."""

from __future__ import annotations

import msgspec
import pytest

from penstock.brokers.tables.flowing import place_of, places_of
from penstock.ids import next_id, to_bytes

FLOW, NODE = next_id(), next_id()
PLACE = to_bytes(FLOW), to_bytes(NODE)
MEMBER = {"id": FLOW, "node": NODE}
OTHER = {"id": next_id(), "node": next_id()}


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
        ({"args": {}, "flow": {"id": "no id", "node": "none"}}, None),
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


@pytest.mark.parametrize("raw", [b"", b"{", b'"flow":', b'{"flow":', b'{"flow":[]}', b"\xff"])
def test_what_cannot_be_read_is_in_no_flow(raw):
    assert place_of(raw) is None
    assert list(places_of([raw])) == []


def test_many_bodies_are_counted_together():
    one = [msgspec.json.encode({"args": {"n": n}, "flow": MEMBER}) for n in range(100)]
    two = [msgspec.json.encode({"flow": OTHER, "args": {"n": n}}) for n in range(3)]
    counted = dict.fromkeys([PLACE, (to_bytes(OTHER["id"]), to_bytes(OTHER["node"]))], 0)

    for place, jobs in places_of([*one, *two, b'{"args":{}}']):
        counted[place] += jobs

    assert list(counted.values()) == [100, 3]
