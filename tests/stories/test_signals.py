"""A flow waits for a word from outside, with no process that waits for it."""

from __future__ import annotations

import subprocess
import sys

from penstock import State, wait_for
from tests.stories.conftest import Story, eventually, whatever_the_store


def say(story: Story, name: str, value: str) -> int:
    """The signal, from a shell; its exit code."""
    command = [sys.executable, "-m", "penstock", "signal", name, value, "--url", story.url]
    return subprocess.run(command, check=False, timeout=60, capture_output=True).returncode


def test_nobody_runs_while_it_waits_and_a_worker_comes_afterwards(story: Story):
    handle = story.task("nap").job(wait_for("number", timeout=600).output).enqueue()
    story.app.close()

    assert say(story, "another", "62") == 1
    assert say(story, "number", "62") == 0
    assert say(story, "number", "63") == 1
    fleet = story.start(drain=True)

    assert fleet.wait() == 0, fleet.output()
    assert handle.result() == 62


@whatever_the_store
def test_a_worker_that_drains_stays_until_the_signal_came(story: Story):
    handle = story.task("nap").job(wait_for("number").output).enqueue()
    story.task("nap").enqueue(1)
    fleet = story.start(drain=True, processes=1, threads=1)
    eventually(lambda: story.ledger("nap"))
    assert handle.state() is State.WAITING

    assert say(story, "number", "62") == 0

    assert fleet.wait() == 0, fleet.output()
    assert handle.result() == 62


def test_one_that_did_not_come_in_time_is_ended_by_a_worker(story: Story):
    late = wait_for("number", timeout=0.5)
    handle = story.task("nap").job(late.output).enqueue()

    fleet = story.start(drain=True)

    assert fleet.wait() == 0, fleet.output()
    assert handle.state() is State.CANCELLED
    assert story.app.handle(late.id).state() is State.CANCELLED
    assert say(story, "number", "62") == 1
