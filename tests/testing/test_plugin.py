"""The pytest plugin, in a project of its own and a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TASKS = """
from penstock import App

app = App("sqlite:///production.db")
sent = []


@app.task
def send(to: str) -> None:
    sent.append(to)


@app.task
async def fetch(url: str) -> None:
    sent.append(url)
"""

TESTS = """
import pytest

from tasks import app, fetch, send, sent


@pytest.fixture
def t(penstock_testing):
    sent.clear()
    return penstock_testing(app)


def test_it_is_enqueued_and_runs(t):
    send.enqueue("ada")
    fetch.enqueue("https://example.org")
    t.assert_enqueued(send, "ada", times=1)
    t.drain()
    assert sent == ["ada", "https://example.org"]


def test_the_next_test_starts_with_nothing(t):
    assert t.jobs() == []


def test_a_store_can_be_named(penstock_testing, tmp_path):
    t = penstock_testing(app, url=f"sqlite:///{tmp_path}/test.db")
    send.enqueue("bob")
    assert len(t.drain()) == 1


def test_a_test_that_fails_gives_the_app_back(t):
    send.enqueue("cid")
    t.assert_enqueued(send, "dot")


def test_after_a_failure_too(t):
    assert t.jobs() == []


def test_without_the_fixture_the_app_is_as_it_was():
    assert app.middlewares == ()
"""


def pytest_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-pno:cacheprovider",
        "-pno:schemathesis",
        *options,
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_project_uses_the_fixture_without_importing_anything(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "test_tasks.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\npythonpath = .\n")

    done = pytest_in(tmp_path)

    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert "tasks:send('dot') was not enqueued." in done.stdout
    assert "tasks:send(to='cid')" in done.stdout or "tasks:send('cid')" in done.stdout
    assert not (tmp_path / "production.db").exists()


@pytest.mark.parametrize("option", [[], ["-p", "no:penstock"]], ids=["installed", "switched off"])
def test_a_project_that_does_not_use_it_notices_nothing(tmp_path, option):
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_nothing_of_ours_is_at_work():\n"
        "    slow = {'penstock.testing.kit', 'penstock.brokers.sqlite', 'sqlalchemy', 'typer'}\n"
        "    assert not slow & set(sys.modules)\n"
    )

    done = pytest_in(tmp_path, "-W", "error", *option)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_fixture_is_listed_with_its_sentence(tmp_path):
    done = pytest_in(tmp_path, "--fixtures")

    assert "penstock_testing" in done.stdout
    assert "Puts an app under test until the end of the test" in done.stdout
