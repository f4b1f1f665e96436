"""Detached jobs outlive the worker that started them, and are resumed when they are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import State
from tests.stories.conftest import alive, eventually, whatever_the_store
from tests.stories.detached_story import PATIENCE, DetachedStory


@pytest.fixture(params=["sqlite", "postgres"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DetachedStory]:
    """On each store in turn."""
    story = DetachedStory(tmp_path, request.getfixturevalue(f"{request.param}_url"))
    yield story
    story.close()


def test_a_detached_job_goes_on_while_its_worker_is_killed_and_restarted_twice(
    story: DetachedStory,
):
    """A1, A2, A3, A7, A9, A11, A32, A41: one run, one end, adopted both times."""
    handle = story.task("travel").enqueue(4)
    first = story.start()
    run = story.run_of(handle.id)
    story.tell("go-0")
    story.wait_for("stop", 1)

    story.kill_group(first)
    story.tell("go-1")
    story.wait_for("stop", 2)
    assert handle.state() is State.RUNNING
    second = story.start()
    eventually(lambda: "is adopted" in second.output(), PATIENCE)
    story.tell("go-2")
    story.wait_for("stop", 3)
    story.kill_group(second)
    third = story.start()
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
    assert [path.suffix for path in story.files.path.iterdir()] == [".log"]
    assert "arrived" in story.files.file(handle.id, "log").read_text()


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
