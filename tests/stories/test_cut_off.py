"""A child that cannot reach the store any more, though its supervisor can, is replaced."""

from __future__ import annotations

import os
import signal
import time

from penstock import State
from tests.stories.conftest import Story, eventually


def test_a_child_that_cannot_reach_the_store_is_replaced_and_its_jobs_run_elsewhere(story: Story):
    """Its supervisor renews its lease, so nobody else would ever recover what it holds."""
    story.start(lease=3.0, threads=1, silence=4.0)
    handle = story.task("close_descriptors").enqueue()

    assert handle.result(timeout=60) == 2

    first, second = story.ledger("close_descriptors")
    assert first[2] != second[2], "the second attempt ran in the same process"
    assert "has not reached the store for" in story.fleets[0].output()
    assert story.task("nap").enqueue(1).result(timeout=30) == 1


def test_a_child_whose_interpreter_is_held_is_not_taken_for_one_that_is_cut_off(story: Story):
    story.start(lease=3.0, silence=2.0)
    handle = story.task("hold").enqueue(6.0)

    assert handle.result(timeout=60) == "held"

    job = story.broker.get(handle.id)
    assert (job.state, job.attempt, job.lapses) == (State.SUCCEEDED, 1, 0)
    assert len(story.ledger("hold")) == 1


def test_a_child_that_was_suspended_has_time_to_reach_the_store_again(story: Story):
    fleet = story.start(lease=3.0, silence=2.0)
    [child] = eventually(fleet.children)
    assert story.task("nap").enqueue(1).result(timeout=30) == 1

    os.kill(child, signal.SIGSTOP)
    time.sleep(4.0)
    os.kill(child, signal.SIGCONT)

    assert story.task("nap").enqueue(2).result(timeout=30) == 2
    assert fleet.children() == [child]


def test_an_outage_replaces_no_child(own_story, own_postgres):
    """Nobody reaches the store: neither child nor supervisor."""
    fleet = own_story.start(lease=3.0, silence=7.0)  # more than the longest pause of a worker
    [child] = eventually(fleet.children)
    running = own_story.task("nap").enqueue(1, seconds=14.0)
    eventually(lambda: own_story.ledger("nap"))

    own_postgres.stop()
    time.sleep(10.0)
    own_postgres.start()

    assert running.result(timeout=60) == 1
    assert fleet.children() == [child]
    assert len(own_story.ledger("nap")) == 1
