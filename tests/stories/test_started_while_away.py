"""Workers and dashboards that are started while their PostgreSQL is away: they wait for it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stories.conftest import TASKS_FILE, Story, eventually

TOKEN = "e19a5c07d3f84b26a0e7c9d1f5b38264"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def probe(port: int, page: str) -> tuple[bool, dict[str, Any]] | None:
    """What a probe of the worker's health answers; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
            return True, json.load(answer)
    except urllib.error.HTTPError as error:
        return False, json.load(error)
    except OSError:
        return None


def penstock(story: Story, log: Path, *words: str) -> subprocess.Popen[bytes]:
    """The command line in a process of its own; what it prints goes to the log."""
    environment = {
        **story.environment(),
        "PENSTOCK_DASHBOARD_TOKENS": f"ada:view:{TOKEN}",
        "TMPDIR": str(story.folder),
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            env=environment,
            cwd=story.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def test_a_worker_waits_says_so_is_red_and_begins_when_the_store_is_there(
    own_story, own_postgres, tmp_path
):
    story, log, port = own_story, tmp_path / "log", free_port()
    handle = story.task("nap").enqueue(1)
    own_postgres.stop()
    words = ["worker", f"{TASKS_FILE}:app", "--processes", "1", "--health-port", str(port)]

    worker = penstock(story, log, *words)
    try:
        waits_for = eventually(lambda: (probe(port, "ready") or (True, {}))[1].get("waits_for"))
        red, live = probe(port, "ready"), probe(port, "live")
        said = log.read_text()
        own_postgres.start()
        result = handle.result(timeout=60)
        ready = eventually(lambda: (seen := probe(port, "ready")) and seen[0] and seen)
    finally:
        worker.terminate()
        code = worker.wait(60)

    assert "does not answer" in waits_for
    assert red is not None
    assert not red[0]
    assert live is not None
    assert live[0]
    assert said.count("the store does not answer") == 1, said
    assert "no job runs here until it does" in said
    assert result == 1
    assert ready[1]["waits_for"] is None
    assert "promise: " in log.read_text()
    assert code == 0


def test_a_worker_that_waits_for_its_store_is_stopped_by_a_signal(own_story, own_postgres):
    own_postgres.stop()
    fleet = own_story.start(grace=60.0)
    eventually(lambda: "does not answer" in fleet.output())

    fleet.signal(signal.SIGTERM)

    code = fleet.wait(30)
    own_postgres.start()
    assert code == 0


def test_a_child_that_waits_for_its_store_is_stopped_at_once(own_story, own_postgres):
    """It holds no job, so there is nothing that needs the grace."""
    fleet = own_story.start(grace=60.0)
    [child] = eventually(fleet.children)
    own_postgres.stop()
    subprocess.run(["kill", "-9", str(child)], check=True)
    eventually(lambda: "this child starts work when it does" in fleet.output())

    fleet.signal(signal.SIGTERM)
    eventually(lambda: not fleet.children(), timeout=30)
    own_postgres.start()


@pytest.mark.parametrize("command", ["worker", "dashboard"])
@pytest.mark.parametrize("wrong", ["database", "user", "password"])
def test_a_wrong_database_user_or_password_ends_it(
    command, wrong, own_story, own_postgres, tmp_path
):
    story, log = own_story, tmp_path / "log"
    story.broker.count()  # there is a store
    if wrong == "database":
        story.worker_url = own_postgres.url("nothing")
    if wrong == "user":
        story.worker_url = story.url.replace("postgres@", "nobody@")
    if wrong == "password":
        (own_postgres.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        own_postgres.stop()
        own_postgres.start()
        story.worker_url = story.url.replace("postgres@", "postgres:canary@")
    words = ["worker", f"{TASKS_FILE}:app"] if command == "worker" else ["dashboard", "--port", "0"]

    try:
        assert penstock(story, log, *words).wait(60) == 2, log.read_text()
    finally:
        if wrong == "password":
            (own_postgres.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 trust\n")
            own_postgres.stop()
            own_postgres.start()

    said = log.read_text()
    assert "refuses this login" in said
    assert "correct the user, the password or the database in the URL" in said.replace("\n", " ")
    assert "canary" not in said


@pytest.mark.parametrize("target", [[], [f"{TASKS_FILE}:app"]], ids=["url", "app"])
def test_a_dashboard_waits_says_so_and_shows_the_store_when_it_is_there(
    target, own_story, own_postgres, tmp_path
):
    story, log, port = own_story, tmp_path / "log", free_port()
    handle = story.task("nap").enqueue(1)
    own_postgres.stop()

    page = penstock(story, log, "dashboard", *target, "--port", str(port))
    head = {"authorization": f"Bearer {TOKEN}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=head, timeout=60) as client:

            def get(path: str) -> httpx.Response | None:
                try:
                    return client.get(path)
                except httpx.ConnectError:
                    return None

            away = eventually(lambda: get("/api/v1/jobs"))
            red = get("/health")
            began = time.monotonic()
            statuses = [client.get("/api/v1/jobs").status_code for _ in range(20)]
            took = time.monotonic() - began
            own_postgres.start()
            back = eventually(lambda: (seen := get("/api/v1/jobs")) and seen.is_success and seen)
    finally:
        page.terminate()
        page.wait(60)

    assert (away.status_code, red.status_code) == (503, 503)
    assert "does not answer" in away.json()["error"]
    assert set(statuses) == {503}
    assert took < 20, "a request waits for a connection of its own"
    assert [job["id"] for job in back.json()["jobs"]] == [handle.id]
    said = log.read_text()
    assert said.count("the store does not answer") == 1, said
    assert "pages say so until it does" in said


def test_a_dashboard_ends_when_the_store_that_comes_back_refuses_it(
    own_story, own_postgres, tmp_path
):
    story, log = own_story, tmp_path / "log"
    own_postgres.stop()
    story.worker_url = own_postgres.url("nothing")

    page = penstock(story, log, "dashboard", "--port", "0")
    eventually(lambda: "pages say so until it does" in log.read_text())
    own_postgres.start()

    assert page.wait(60) == 2
    assert "refuses this login" in log.read_text()
