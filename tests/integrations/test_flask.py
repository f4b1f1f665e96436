"""Flask: its config says where, and its context is around every task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, current_app, g

from penstock import JobFailed, KeyRing, Refused
from penstock.brokers import open_broker
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

    resolved = jobs.resolved_url
    assert (resolved.url, resolved.source) == (
        flask.config["PENSTOCK_URL"],
        "PENSTOCK_URL of Flask's config",
    )
    assert FlaskApp(flask).resolved_url.url == flask.config["PENSTOCK_URL"]


def test_without_an_application_a_task_says_what_is_missing(jobs):
    @jobs.task(name="plain")
    def plain() -> None: ...

    with jobs.testing() as t:
        handle = plain.enqueue()
        t.drain()

        with pytest.raises(JobFailed, match=r"init_app\(flask_app\)"):
            handle.result()


def test_the_config_has_the_keys(flask, jobs, tmp_path):
    @jobs.task(name="echo", secret=("text",), keep_secrets=60)
    def echo(text: str) -> str:
        return text

    flask.config["PENSTOCK_KEYS"] = [KeyRing.new_key()]
    jobs.init_app(flask)
    handle = echo.enqueue("hunter2")
    stored = open_broker(jobs.resolved_url.url)
    assert b'"$sealed"' in stored.get(handle.id).body
    stored.close()
    Worker(jobs, drain=True).work()

    assert handle.result(timeout=5) == "hunter2"


def test_the_config_names_a_key_file(flask, jobs, tmp_path):
    (tmp_path / "keys").write_text(KeyRing.new_key())
    (tmp_path / "keys").chmod(0o600)
    flask.config["PENSTOCK_KEY_FILE"] = str(tmp_path / "keys")
    jobs.init_app(flask)

    assert jobs.seals


def test_keep_secrets_without_keys_is_refused_when_it_is_bound(flask, jobs):
    jobs.task(name="echo", secret=("text",), keep_secrets=60)(lambda text: None)

    with pytest.raises(Refused, match="task echo: keep_secrets"):
        jobs.init_app(flask)
