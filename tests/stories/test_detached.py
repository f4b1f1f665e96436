"""Detached jobs outlive the worker that started them, and are resumed when they are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import State
from tests.stories.conftest import alive, eventually, whatever_the_store
from tests.stories.detached_story import PATIENCE, TASKS_FILE, DetachedStory


@pytest.fixture(params=["sqlite", "postgres"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DetachedStory]:
    """On each store in turn."""
    story = DetachedStory(tmp_path, request.getfixturevalue(f"{request.param}_url"))
    yield story
    story.close()


def deployed(story: DetachedStory, word: str) -> str:
    """The app of the stories in a file of its own, in which travellers say this at the end."""
    code = TASKS_FILE.read_text()
    assert code.count('print("arrived")') == 1
    path = story.folder / "deployed.py"
    path.write_text(code.replace('print("arrived")', f"print({word!r})"))
    return f"{path}:app"


def locked(story: DetachedStory, job: str) -> bool:
    """What the view says of the job; where there is no view, what it would say."""
    if story.url.startswith("sqlite"):
        holder = story.broker.get(job).worker
        return any(row.alive for row in story.broker.workers() if row.id == holder)
    [(alive_row,)] = story.select(f"select locked from penstock.detached where id = '{job}'")
    return alive_row


def test_a_detached_job_goes_on_while_its_worker_is_killed_and_restarted_twice(
    story: DetachedStory,
):
    """A1, A2, A3, A7, A9, A11, A21, A32, A41: one run, one end, adopted both times, on new code."""
    handle = story.task("travel").enqueue(4)
    first = story.start(target=deployed(story, "arrived"))
    run = story.run_of(handle.id)
    story.tell("go-0")
    story.wait_for("stop", 1)

    story.kill_group(first)
    story.tell("go-1")
    story.wait_for("stop", 2)
    assert handle.state() is State.RUNNING
    assert locked(story, handle.id)
    second = story.start(target=deployed(story, "arrived by the second code"))
    eventually(lambda: "is adopted" in second.output(), PATIENCE)
    story.tell("go-2")
    story.wait_for("stop", 3)
    story.kill_group(second)
    third = story.start(target=deployed(story, "arrived by the third code"))
    eventually(lambda: "is adopted" in third.output(), PATIENCE)
    assert alive(run.pid)
    assert handle.state() is State.RUNNING
    story.tell("go-3")

    assert handle.result(timeout=PATIENCE) == 4
    assert story.app.handle(handle.id).result(timeout=0) == 4
    assert [line[1] for line in story.ledger("travel")] == ["1"]
    assert [line[1] for line in story.ledger("stop")] == ["0", "1", "2", "3"]
    assert [(event.state, event.attempt) for event in story.attempts(handle.id)] == [
        (State.SUCCEEDED, 1)
    ]
    eventually(lambda: not alive(run.pid), PATIENCE)
    assert [path.suffix for path in story.files.path.glob("*.*")] == [".log"]
    assert "arrived\n" in story.log(handle.id)
    assert not locked(story, handle.id)
    later = story.task("travel").enqueue(4)
    assert later.result(timeout=PATIENCE) == 4
    assert "arrived by the third code\n" in story.log(later.id)


def listed(story: DetachedStory) -> dict[str, Any]:
    """The one line of `penstock detached --json`."""
    command = [sys.executable, "-m", "penstock", "detached", "--url", story.url, "--json"]
    said = subprocess.run(
        command, env=story.environment(), cwd=story.folder, capture_output=True, check=True
    )
    return json.loads(said.stdout)


def locked_by_lease(story: DetachedStory, job: str) -> bool:
    holder = story.broker.get(job).worker
    return any(row.alive for row in story.broker.workers() if row.id == holder)


@whatever_the_store
def test_one_that_is_killed_while_there_is_no_worker_is_resumed_by_the_next(story: DetachedStory):
    """A8, A9, A13: it is not taken for one that runs, and its lease is not waited for."""
    handle = story.task("travel").enqueue(2)
    first = story.start(lease=3600.0)
    run = story.run_of(handle.id)
    story.tell("go-0")
    story.wait_for("stop", 1)
    eventually(lambda: story.broker.notes(handle.id, "snapshot"), PATIENCE)
    story.kill_group(first)

    assert listed(story)["locked"]
    os.kill(run.pid, signal.SIGKILL)
    # No worker, and an hour of lease: this host's files say that no process holds it.
    eventually(lambda: not alive(run.pid), PATIENCE)
    assert not listed(story)["locked"]
    assert locked_by_lease(story, handle.id)
    story.start(lease=3600.0)

    story.wait_for("travel", 2)
    story.tell("go-1")
    assert handle.result(timeout=PATIENCE) == 2
    assert [line[1] for line in story.ledger("stop")] == ["0", "1"]
    ends = [(event.state, event.reason) for event in story.attempts(handle.id)]
    assert ends == [(State.READY, "crashed"), (State.SUCCEEDED, None)]


@whatever_the_store
def test_a_detached_job_that_is_killed_is_resumed_from_its_last_snapshot(story: DetachedStory):
    """A6, A8, A13: the process and its keeper are killed; what was done is not done again."""
    handle = story.task("travel").enqueue(3)
    story.start()
    run = story.run_of(handle.id)
    story.tell("go-0")
    [line] = story.wait_for("stop", 1)
    eventually(lambda: story.broker.notes(handle.id, "snapshot"), PATIENCE)

    os.kill(int(line[-1]), signal.SIGKILL)
    story.wait_for("travel", 2)
    story.tell("go-1")
    story.wait_for("stop", 2)
    eventually(lambda: story.broker.notes(handle.id, "snapshot")[-1].value == b"2", PATIENCE)
    os.kill(story.run_of(handle.id).pid, signal.SIGKILL)
    story.wait_for("travel", 3)
    story.tell("go-2")

    assert handle.result(timeout=PATIENCE) == 3
    assert [line[1] for line in story.ledger("stop")] == ["0", "1", "2"]
    assert [line[1] for line in story.ledger("travel")] == ["1", "2", "3"]
    assert not alive(run.pid)
