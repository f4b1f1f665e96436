"""What tests of whole flows ask for: an app on each store in turn, and a worker for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App
from penstock.brokers import open_broker
from penstock.worker import Worker


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the test's own, on each kind in turn."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """An app on it, with the machine's own clock."""
    broker = open_broker(url)
    app = App(broker=broker)
    yield app
    app.close()
    broker.close()


def work(app: App, threads: int = 1) -> Worker:
    """One worker, with one hand unless told otherwise, until nothing is left to run."""
    worker = Worker(app, threads=threads, async_slots=1, drain=True)
    worker.work()
    return worker
