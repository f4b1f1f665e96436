"""What the tests of trust share."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path) -> str:
    """An empty store of the test's own: a file, and a server, in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_url(request: pytest.FixtureRequest, tmp_path) -> str:
    """As `store_url`, and nobody has opened it yet; there is room for tables of the test's."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest):
    """The brokers whose jobs outlive the process, in turn, on the test's clock."""
    return request.getfixturevalue(f"{request.param}_broker")
