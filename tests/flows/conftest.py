"""What tests of whole flows ask for: an app on each store in turn, and a worker for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock import App, Task
from penstock.brokers import open_broker
from penstock.testing import Testing
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


CHILDREN = ["discord", "telegram", "email"]


class Guild(NamedTuple):
    """The app under test, its tasks, and what they were called with."""

    t: Testing
    check: Task[..., Any]
    reward: Task[..., Any]
    finish: Task[..., Any]
    calls: list[tuple[str, dict[str, Any]]]

    def access_flow(self, user: int = 62) -> Any:
        access = self.check.job(user)
        rewards = self.reward.map(CHILDREN, access=access.output)
        return self.finish.job(rewards.output)


@pytest.fixture
def guild(url: str) -> Iterator[Guild]:
    app = App("memory:")
    calls: list[tuple[str, dict[str, Any]]] = []

    @app.task(name="access-check", queue="access-check")
    def check(user: int) -> bool:
        calls.append(("access-check", {"user": user}))
        return user > 10

    @app.task(name="manage-reward:platform", queue="manage-reward:platform")
    def reward(platform: str, access: bool) -> str:
        calls.append(("manage-reward:platform", {"platform": platform, "access": access}))
        return f"{platform} {'granted' if access else 'revoked'}"

    @app.task(name="finish", queue="finish")
    def finish(rewards: list[str]) -> list[str]:
        calls.append(("finish", {"rewards": rewards}))
        return rewards

    with app.testing(url=url) as t:
        yield Guild(t, check, reward, finish, calls)
        app.resources.close()
