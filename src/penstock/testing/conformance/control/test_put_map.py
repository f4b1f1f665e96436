"""What a store keeps as one of several shards: the map, and enqueues over several of them."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.shard_map import ShardMap, SplitEnqueue, even_ranges
from penstock.errors import Refused

# Shards have a map already, and keep these records on each shard by itself.
pytestmark = pytest.mark.needs("order across buckets")
FIRST = ShardMap(fleet="ours", shard="a", epoch=1, ranges=even_ranges(["a", "b"]))
SECOND = msgspec.structs.replace(FIRST, epoch=2)


def test_a_map_is_kept_until_one_of_a_higher_epoch_comes(broker):
    assert broker.records(ShardMap) == []

    assert broker.put(msgspec.structs.replace(FIRST, epoch=0, ranges=((0, "b"),))).epoch == 0
    assert broker.put(FIRST) == FIRST
    assert broker.put(SECOND) == SECOND
    assert broker.put(FIRST) == SECOND
    assert broker.put(msgspec.structs.replace(FIRST, epoch=2)) == SECOND

    assert broker.records(ShardMap) == [SECOND]


def test_a_map_that_is_in_force_keeps_its_buckets_which_only_a_move_changes(broker):
    broker.put(FIRST)

    assert broker.put(msgspec.structs.replace(SECOND, ranges=((0, "b"),))) == SECOND


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (msgspec.structs.replace(SECOND, shard="b"), "is shard 'a', and not 'b'"),
        (msgspec.structs.replace(SECOND, fleet="theirs"), "'a' of another set of shards"),
        (msgspec.structs.replace(SECOND, ranges=((1, "a"),)), "ranges from bucket 0 up to 1023"),
        (msgspec.structs.replace(SECOND, ranges=((0, "a"), (1024, "b"))), "not \\[0, 1024\\]"),
        (msgspec.structs.replace(SECOND, ranges=((0, "a"), (0, "b"))), "not \\[0, 0\\]"),
        (msgspec.structs.replace(SECOND, ranges=()), "not \\[\\]"),
    ],
)
def test_a_map_that_cannot_be_this_stores_changes_nothing(broker, given, says):
    broker.put(FIRST)

    with pytest.raises(Refused, match=says):
        broker.put(given)

    assert broker.records(ShardMap) == [FIRST]


def test_an_enqueue_over_shards_is_kept_as_it_came_first_until_it_is_cleared(broker):
    first = SplitEnqueue(id="7", at=1.0, jobs=b"\x00\xff")
    other = SplitEnqueue(id="8", at=2.0, jobs=b"")

    assert broker.put(first) == first
    assert broker.put(SplitEnqueue(id="7", at=3.0, jobs=b"x")) == first
    broker.put(other)

    assert broker.records(SplitEnqueue) == [first, other]
    assert broker.clear(SplitEnqueue, "7") is True
    assert broker.clear(SplitEnqueue, "7") is False
    assert broker.records(SplitEnqueue) == [other]
    assert broker.history() == []
