"""SIGTERM: what runs may end, the rest goes back uncounted."""

from __future__ import annotations

import os
import signal
import time

from penstock import State
from tests.stories.conftest import Story, alive, eventually, whatever_the_store


def test_sigterm_under_load_hands_back_uncounted(story: Story):
    handles = story.app.enqueue(
        [story.task(name).job(n, 0.05) for n in range(400) for name in ("nap", "nap_async")]
    )
    fleet = story.start(processes=2)
    eventually(lambda: len(story.ledger()) > 50)
    children = fleet.children()

    fleet.signal(signal.SIGTERM)

    assert fleet.wait() == 0, fleet.output()
    assert not any(alive(pid) for pid in children)
    states = story.states(handles)
    assert states[State.RUNNING] == 0
    assert states[State.SUCCEEDED] + states[State.READY] == 800
    assert states[State.READY] > 0
    assert story.counted() == {}
    ready = [job for handle in handles if (job := story.broker.get(handle.id)).state is State.READY]
    assert {(job.failures, job.lapses) for job in ready} == {(0, 0)}
    # Whatever began was allowed to end: no attempt was cut short.
    assert len(story.ledger()) == states[State.SUCCEEDED]


@whatever_the_store
def test_what_does_not_end_within_the_grace_goes_back_uncounted(story: Story):
    endless = [story.task("nap").enqueue(n, seconds=600) for n in range(3)]
    endless += [story.task("nap_async").enqueue(n, seconds=600) for n in range(3)]
    fleet = story.start(grace=0.5)
    eventually(lambda: len(story.ledger()) == 6)

    fleet.signal(signal.SIGTERM)

    assert fleet.wait() == 0, fleet.output()
    jobs = [story.broker.get(handle.id) for handle in endless]
    assert {(job.state, job.reason, job.failures, job.lapses) for job in jobs} == {
        (State.READY, "shutdown", 0, 0)
    }


@whatever_the_store
def test_a_second_signal_hands_back_at_once(story: Story):
    handle = story.task("nap").enqueue(1, seconds=600)
    fleet = story.start(grace=60)
    eventually(lambda: story.ledger("nap"))

    fleet.signal(signal.SIGTERM)
    eventually(lambda: "draining" in fleet.output())
    began = time.monotonic()
    fleet.signal(signal.SIGTERM)

    assert fleet.wait() == 0, fleet.output()
    assert time.monotonic() - began < 40
    assert handle.state() is State.READY


@whatever_the_store
def test_ctrl_c_reaches_everybody_and_the_supervisor_decides(story: Story):
    handles = story.app.enqueue([story.task("nap").job(n, 0.5) for n in range(30)])
    fleet = story.start()
    eventually(story.ledger)

    os.killpg(fleet.pid, signal.SIGINT)

    assert fleet.wait() == 0, fleet.output()
    states = story.states(handles)
    assert states[State.RUNNING] == 0
    assert states[State.SUCCEEDED] == len(story.ledger())
    assert story.counted() == {}


@whatever_the_store
def test_a_child_that_is_asked_to_end_by_itself_is_replaced(story: Story):
    fleet = story.start()
    [before] = eventually(fleet.children)
    story.task("nap").enqueue(1).result(timeout=60)

    os.kill(before, signal.SIGTERM)

    eventually(lambda: fleet.children() and before not in fleet.children())
    assert story.task("nap").enqueue(2).result(timeout=60) == 2
