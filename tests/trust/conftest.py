"""What the tests of trust share: after each, the history of its store is checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.testing.checker import check_store
from tests.checked_stores import (
    pytest_fixture_setup,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)

__all__ = ["pytest_fixture_setup", "pytest_runtest_makereport", "pytest_runtest_teardown"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path) -> Iterator[str]:
    """An empty store of the test's own: a file, and a server, in turn."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        url = request.getfixturevalue("postgres_store_url")
    yield url
    check(url)


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_url(request: pytest.FixtureRequest, tmp_path) -> Iterator[str]:
    """As `store_url`, and nobody has opened it yet; there is room for tables of the test's."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        url = request.getfixturevalue("postgres_url")
    yield url
    check(url)


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The brokers whose jobs outlive the process, in turn, on the test's clock."""
    broker = request.getfixturevalue(f"{request.param}_broker")
    yield broker
    check_broker(broker)


def check(url: str) -> None:
    broker = open_broker(url)
    try:
        check_broker(broker)
    finally:
        broker.close()


def check_broker(broker: Broker) -> None:
    verdict = check_store(broker, tolerance=0.05)
    assert verdict.ok, verdict
