"""Batches and kill -9: a call that dies takes nobody with it for good."""

from __future__ import annotations

import os
import signal
from collections import Counter

from penstock import State
from tests.stories.conftest import Story, eventually, whatever_the_store


@whatever_the_store
def test_one_poison_job_in_a_batch_fails_alone(story: Story):
    """G34: every job of the call that died lapses, and then each runs apart."""
    poison = story.task("poison_batch")
    handles = [poison.enqueue(-1 if n == 20 else n) for n in range(40)]

    # One thread: a call beside the one that dies could have begun without a line in the ledger yet.
    fleet = story.start(drain=True, threads=1)

    assert fleet.wait(60) == 0, fleet.output()
    bad = story.broker.get(handles[20].id)
    assert (bad.state, bad.reason, bad.lapses) == (State.FAILED, "crashed", 3)
    successes = story.successes()
    assert [successes[handle.id] for handle in handles] == [int(n != 20) for n in range(40)]
    # One call of many died; after it the poison was never called with others again.
    deadly = [line[1:-2] for line in story.ledger("poison_batch") if "-1" in line]
    assert [len(call) for call in deadly[1:]] == [1, 1]
    # A lapse is counted for those that a deadly call was for, and for nobody else.
    calls = Counter(n for line in story.ledger("poison_batch") for n in line[1:-2])
    number = {handle.id: str(n) if n != 20 else "-1" for n, handle in enumerate(handles)}
    lapses = Counter(
        number[event.job or ""] for event in story.attempts() if event.reason == "crashed"
    )
    assert set(deadly[0]) <= set(lapses)
    assert all(count == calls[n] - (n != "-1") for n, count in lapses.items())


@whatever_the_store
def test_a_child_that_is_killed_in_a_call_loses_nothing(story: Story):
    handles = [story.task("nap_batch").enqueue(1.5 if n < 10 else 0.0) for n in range(30)]
    fleet = story.start(lease=1.0)
    eventually(lambda: any("1.5" in line for line in story.ledger("nap_batch")))
    [child] = fleet.children()

    os.kill(child, signal.SIGKILL)

    eventually(lambda: story.states(handles)[State.SUCCEEDED] == 30, timeout=60)
    assert set(story.successes().values()) == {1}
    assert set(story.counted()) == {"crashed"}
