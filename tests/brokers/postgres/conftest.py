"""What the tests of the PostgreSQL broker alone may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.postgres.logins import Logins


@pytest.fixture
def logins(postgres_url: str) -> Iterator[Logins]:
    """A database of the test's own, and whoever it wants to be there."""
    logins = Logins(postgres_url)
    yield logins
    logins.close()
