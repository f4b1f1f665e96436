"""Servers of a test's own, to be killed, frozen, filled and cut off."""

from __future__ import annotations

import pytest

from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.testing.redis import RedisServer


@pytest.fixture
def own_redis():
    """As durable as the default demands."""
    with RedisServer(kind="valkey") as server:
        yield server


@pytest.fixture
def connect():
    """Opens servers of a URL, and closes them."""
    opened = []

    def connect(url):
        opened.append(ServerCalls(parse_address(url)))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
