"""The stores that a history is read from: of shards each by itself, with its own positions."""

from __future__ import annotations

from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import Selection
from penstock.brokers.sharded import ShardedBroker

ONLY = ""  # the name of the store where there is one


def stores_in(broker: Broker) -> dict[str, Broker]:
    """The stores behind a broker by the names of the shards; one that is away is an error."""
    if not isinstance(broker, ShardedBroker):
        return {ONLY: broker}
    return broker.shards.every(lambda store: store)


def store_id(broker: Broker, after: Position = BEGINNING) -> str:
    """The store's id; refused if the store has not reached this position."""
    return broker.reach(Selection(table="attempts"), after, at_most=1, patience=0).store
