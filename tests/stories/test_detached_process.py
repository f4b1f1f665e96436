"""What a function may do to the process it runs in, and its job still ends as it should."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import State
from tests.stories.conftest import alive, eventually
from tests.stories.detached_story import PATIENCE, DetachedStory


@pytest.fixture
def story(sqlite_url: str, tmp_path: Path) -> Iterator[DetachedStory]:
    story = DetachedStory(tmp_path, sqlite_url)
    yield story
    story.close()


def test_one_that_closes_its_output_has_its_result_stored(story: DetachedStory):
    handle = story.task("hang_up").enqueue()
    story.start()

    assert handle.result(timeout=PATIENCE) == 7
    assert story.broker.get(handle.id).attempt == 1


def test_a_death_is_seen_though_forks_of_the_process_live_on(story: DetachedStory):
    """A13, I14: as of a pool's main process that the kernel chose when memory ran out."""
    handle = story.task("die_before_forks").enqueue()
    story.start()
    [[_, _, fork]] = story.wait_for("forked")

    story.tell("die")

    assert handle.result(timeout=PATIENCE) == 2
    assert not alive(int(fork))


def test_one_that_goes_on_in_a_fork_has_ended(story: DetachedStory):
    """A26: the process that was given the job is the one that answers; its fork is ended."""
    handle = story.task("hide").enqueue()
    fleet = story.start(drain=True)

    assert fleet.wait(PATIENCE) == 0, fleet.output()
    job = story.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "lost")
    assert "exit code 0" in job.error
    assert not story.marked()


def test_processes_that_outlive_their_parents_are_let_go_when_they_end(story: DetachedStory):
    """I14: else a job of days, which leaves one behind each minute, fills the kernel's table."""
    handle = story.task("outlive_strays").enqueue(3)
    story.start()
    story.wait_for("strays")

    story.tell("go")

    assert handle.result(timeout=PATIENCE) == 3


def test_what_it_writes_has_the_modes_that_its_worker_gives(story: DetachedStory):
    handle = story.task("tell_umask").enqueue()
    before = os.umask(0o022)
    try:
        story.start()
    finally:
        os.umask(before)

    assert handle.result(timeout=PATIENCE) == 0o022


def test_what_it_prints_is_in_its_log_at_once(story: DetachedStory):
    """A43: not when a buffer is full, or the job ends, or never if it is killed."""
    handle = story.task("mutter").enqueue("enough")
    story.start()
    story.wait_for("muttered")

    eventually(lambda: "a word\n" in story.log(handle.id), PATIENCE)
    story.tell("enough")
    assert handle.result(timeout=PATIENCE) is None
