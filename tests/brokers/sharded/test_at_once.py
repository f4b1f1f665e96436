"""Shards whose stores are servers are asked at the same time; each answer is as without that."""

from __future__ import annotations

from contextvars import ContextVar
from threading import Barrier, current_thread

import pytest

from penstock.brokers.sharded.shards import AWAY
from penstock.errors import StoreUnreachable
from tests.brokers.sharded.unplugged import Unplugged, sharded

asker: ContextVar[str] = ContextVar("asker", default="nobody")


@pytest.fixture
def stores(clock):
    stores = [Unplugged(clock) for _ in range(3)]
    for store in stores:
        store.traits.apart = True
    return stores


def test_no_shard_waits_until_another_one_has_answered(clock, stores):
    broker = sharded(clock, *stores)
    all_asked = Barrier(len(stores), timeout=60)

    def question(store) -> tuple[int, str]:
        all_asked.wait()
        return stores.index(store), asker.get()

    token = asker.set("a page")
    try:
        answers = broker.shards.reached(question)
    finally:
        asker.reset(token)

    assert answers == {"a": (0, "a page"), "b": (1, "a page"), "c": (2, "a page")}


def test_files_are_asked_one_after_the_other(clock):
    broker = sharded(clock, Unplugged(clock), Unplugged(clock))

    asked_by = broker.shards.reached(lambda _: current_thread())

    assert set(asked_by.values()) == {current_thread()}


def test_one_that_is_away_is_left_out_and_another_error_is_raised(clock, stores):
    broker = sharded(clock, *stores)
    stores[1].away = True

    assert broker.count() == []
    assert broker.traits.missing() == ("shard b is away: nobody answers",)
    with pytest.raises(ZeroDivisionError):
        broker.shards.reached(lambda store: 1 // stores.index(store) if store is stores[0] else 0)


def test_where_all_are_away_the_first_one_is_named(clock, stores):
    broker = sharded(clock, *stores)
    for store in stores:
        store.away = True

    with pytest.raises(AWAY, match="shard a: nobody answers") as raised:
        broker.count()

    assert isinstance(raised.value, StoreUnreachable)
