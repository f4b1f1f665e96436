"""A fork after use: parent and child each have the file for themselves, and no job is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.brokers.sqlite import SqliteBroker
from penstock.job import Job, State

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_jobs_of_a_child_stay_when_the_parent_closes_the_store(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    parent = SqliteBroker(path)
    parent.enqueue([Job(task="mail:send")])
    ready, begun = os.pipe()
    go_on, closed = os.pipe()
    late = Job(task="mail:send")

    child = os.fork()
    if child == 0:
        own = SqliteBroker(path)
        own.enqueue([Job(task="mail:send")])
        os.write(begun, b"!")
        os.read(go_on, 1)
        own.enqueue([late])
        os._exit(0)
    os.read(ready, 1)
    parent.close()
    os.write(closed, b"!")
    os.waitpid(child, 0)

    again = SqliteBroker(path)
    found = again.get(late.id)
    again.close()
    assert found is not None
    assert found.state is State.READY


def test_a_child_can_write_though_a_thread_of_the_parent_was_writing(tmp_path: Path) -> None:
    broker = SqliteBroker(tmp_path / "jobs.db")
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with broker.store.writing():
            inside.set()
            leave.wait(5)

    writer = threading.Thread(target=write)
    writer.start()
    inside.wait()
    threading.Timer(0.1, leave.set).start()
    child = os.fork()
    if child == 0:
        broker.enqueue([Job(task="mail:send")])
        os._exit(0)
    _, code = os.waitpid(child, 0)
    writer.join()

    assert code == 0
    assert [count.ready for count in broker.count()] == [1]
    broker.close()


def test_a_program_that_ends_without_closing_its_store_is_not_warned(tmp_path: Path) -> None:
    program = (
        "from penstock import App\n"
        "app = App('sqlite:///jobs.db')\n"
        "@app.task(name='mail:send')\n"
        "def send() -> None: ...\n"
        "send.enqueue()\n"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
