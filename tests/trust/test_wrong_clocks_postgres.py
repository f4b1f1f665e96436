"""A machine whose clock is wrong: from an app's first call on the store's clock decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App
from penstock.enqueue.ids import time_of
from penstock.job import Job

PROGRAM = Path(__file__).with_name("programs") / "wrong_clock.py"
SLOW, FAST = -120.0, 90.0
TASKS = """
from penstock import App

app = App({url!r})


@app.task(name="send")
def send(n: int) -> None: ...
"""
# Before anything of ours is there, which keeps hold of the function.
WRONG = """
import time

right = time.time
time.time = lambda: right() + {ahead}
"""


def call(folder: Path, ahead: float, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, on a machine whose clock is so many seconds ahead."""
    (folder / "sitecustomize.py").write_text(WRONG.format(ahead=ahead))
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


def server_time(url: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute("select extract(epoch from clock_timestamp())::float").fetchone()
    assert row is not None
    return row[0]


def wrong_about(job: Job[Any], way: str, began: float, ended: float) -> list[str]:
    """What of its times is not by the server's clock."""
    said = [
        ("id", time_of(job.id), 0.0),
        ("enqueued_at", job.enqueued_at, 0.0),
        ("run_at", job.run_at, 60.0 if "at" not in way.split("_") else None),
        ("expires_at", job.expires_at, 60.0),
    ]
    wrong: list[str] = []
    for name, time, later in said:
        if time is None or not time or (name == "run_at" and later is None):
            continue
        off = time - (later or 0.0) - began
        plain = name == "run_at" and -1 <= time - began <= ended - began + 1  # at once
        if not plain and not -1 <= off <= ended - began + 1:
            wrong.append(f"{name} is {off:+.1f} s off")
    return wrong


@pytest.mark.parametrize("ahead", [SLOW, FAST, 0.0])
def test_the_first_call_goes_by_the_store_s_clock(postgres_store_url, tmp_path, ahead):
    url = postgres_store_url
    began = server_time(url)
    done = call(tmp_path, ahead, str(PROGRAM), url)
    ended = server_time(url)
    assert done.returncode == 0, done.stderr
    assert ended - began < -SLOW / 2, "this machine is too slow for the test to tell"

    found: dict[str, Any] = json.loads(done.stdout)
    app = App(url)
    wrong: dict[str, Any] = {}
    for way, said in found.items():
        if "error" in said:
            wrong[way] = said["error"]
            continue
        assert said["ids"], way
        for job_id in said["ids"]:
            job = app.broker.get(job_id)
            assert job is not None, (way, job_id)
            if off := wrong_about(job, way, began, ended):
                wrong[way] = off
            if "at" in way.split("_"):
                assert job.run_at == 2208988800, way
    app.close()
    assert wrong == {}
    assert len(found) > 20


def test_where_the_clock_is_right_a_job_value_keeps_its_id(postgres_store_url):
    """This machine's clock is the server's here."""
    app = App(postgres_store_url)

    @app.task(name="send")
    def send(n: int) -> None: ...

    job = send.options(delay=60).job(1)
    made = (job.id, job.run_at)

    handle = job.enqueue()

    stored = app.broker.get(handle.id)
    app.close()
    assert stored is not None
    assert (handle.id, stored.run_at) == made


@pytest.mark.parametrize("ahead", [SLOW, FAST])
@pytest.mark.parametrize("option", [["--delay", "60s"], ["--unique", "one", "--unique-for", "60s"]])
def test_the_command_line_goes_by_the_store_s_clock(postgres_store_url, tmp_path, ahead, option):
    url = postgres_store_url
    (tmp_path / "tasks.py").write_text(TASKS.format(url=url))
    began = server_time(url)
    done = call(tmp_path, ahead, "-m", "penstock", "enqueue", "tasks:send", "1", *option)
    ended = server_time(url)
    assert done.returncode == 0, done.stderr

    app = App(url)
    job = app.broker.get(done.stdout.strip())
    app.close()
    assert job is not None
    assert wrong_about(job, "delay", began, ended) == []
