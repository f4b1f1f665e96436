"""What the tests of the PostgreSQL broker alone may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.looks import Look
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.steps import this_plan
from tests.brokers.postgres.logins import Logins


@pytest.fixture
def logins(postgres_url: str) -> Iterator[Logins]:
    """A database of the test's own, and whoever it wants to be there."""
    logins = Logins(postgres_url)
    yield logins
    logins.close()


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """A store of its own, on a server of its own for a test that looks at all of it."""
    if "own_postgres" in request.fixturenames:
        url = request.getfixturevalue("own_postgres").create_database()
    else:
        url = request.getfixturevalue("postgres_url")
    PostgresBroker(url).close()
    return url


@pytest.fixture
def look(store: str) -> Iterator[Look]:
    with connect(store, prepare=False) as connection:
        yield Look(connection, store, False, read_meta(connection), this_plan())
