"""Flask: its config says where, and its context is around every task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, current_app, g

from penstock import JobFailed
from penstock.integrations.flask import FlaskApp
from penstock.worker import Worker


@pytest.fixture
def flask(tmp_path: Path) -> Flask:
    flask = Flask("shop")
    flask.config.update(PENSTOCK_URL=f"sqlite:///{tmp_path / 'jobs.db'}", SHOP="ada")
    return flask


@pytest.fixture
def jobs() -> Iterator[FlaskApp]:
    jobs = FlaskApp()
    yield jobs
    jobs.close()


def test_tasks_run_inside_of_the_application_and_each_is_torn_down(flask, jobs):
    torn_down: list[str] = []

    @flask.teardown_appcontext
    def note(_: BaseException | None) -> None:
        torn_down.append(g.mine)

    @jobs.task(name="plain")
    def plain() -> str:
        g.mine = "plain"
        return current_app.config["SHOP"]

    @jobs.task(name="awaited")
    async def awaited() -> str:
        g.mine = "awaited"
        return current_app.config["SHOP"]

    jobs.init_app(flask)
    handles = [plain.enqueue(), awaited.enqueue()]
    Worker(jobs, drain=True).work()

    assert [handle.result(timeout=5) for handle in handles] == ["ada", "ada"]
    assert sorted(torn_down) == ["awaited", "plain"]
    assert flask.extensions["penstock"] is jobs


def test_the_config_says_where_the_jobs_are(flask, jobs, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", "memory:")
    assert jobs.resolved_url.url == "memory:"

    jobs.init_app(flask)

    assert jobs.resolved_url == (flask.config["PENSTOCK_URL"], "PENSTOCK_URL of Flask's config")
    assert FlaskApp(flask).resolved_url.url == flask.config["PENSTOCK_URL"]


def test_without_an_application_a_task_says_what_is_missing(jobs):
    @jobs.task(name="plain")
    def plain() -> None: ...

    with jobs.testing() as t:
        handle = plain.enqueue()
        t.drain()

        with pytest.raises(JobFailed, match=r"init_app\(flask_app\)"):
            handle.result()
