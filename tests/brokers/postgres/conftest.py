"""What the tests of the PostgreSQL broker alone may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.doctor_checks import CheckContext
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.migration_steps import this_plan
from tests.brokers.postgres.logins import Logins


@pytest.fixture
def logins(request: pytest.FixtureRequest) -> Iterator[Logins]:
    """A database of the test's own, that of its store if it has one, and whoever is to be there."""
    own = "own_store_url" if {"plain", "store"} & {*request.fixturenames} else "postgres_url"
    logins = Logins(request.getfixturevalue(own))
    yield logins
    logins.close()


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """A store of its own, on a server of its own for a test that looks at all of it."""
    if "own_postgres" not in request.fixturenames:
        return request.getfixturevalue("own_store_url")
    url = request.getfixturevalue("own_postgres").create_database()
    PostgresBroker(url).close()
    return url


@pytest.fixture
def context(store: str) -> Iterator[CheckContext]:
    with connect(store, prepare=False) as connection:
        yield CheckContext(connection, store, False, read_meta(connection), this_plan())
