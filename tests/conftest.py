"""What every test may ask for. Asking for `broker` makes a test part of what a broker is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.testing.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """A clock that moves when the test says so."""
    return Clock()


@pytest.fixture
def memory_broker(clock: Clock) -> Iterator[MemoryBroker]:
    broker = MemoryBroker(clock)
    yield broker
    broker.close()


@pytest.fixture
def sqlite_broker(clock: Clock, tmp_path: Path) -> Iterator[Broker]:
    from penstock.brokers.sqlite import SqliteBroker

    broker = SqliteBroker(tmp_path / "jobs.db", clock=clock)
    yield broker
    broker.close()


@pytest.fixture(params=["memory", "sqlite"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn, on the test's clock."""
    return request.getfixturevalue(f"{request.param}_broker")
