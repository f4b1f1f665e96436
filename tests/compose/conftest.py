"""The app of these tests, on each kind of store."""

from __future__ import annotations

import pytest

from tests.compose.compose_tasks import app


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def t(request, tmp_path):
    """The app under test, on each kind of store in turn."""
    url = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_store_url")
    with app.testing(url=url) as t:
        yield t
