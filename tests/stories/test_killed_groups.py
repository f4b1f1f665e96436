"""A supervisor and all its children are killed at once, and started again on the same host."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from penstock import State
from penstock.broker.values import Wanted
from tests.stories.conftest import Fleet, Story, alive, eventually, whatever_the_store

LEASE = 120.0
SOON = 60.0  # two seconds are promised; a busy machine is slower, and a lease would take longer


def kill_at_once(fleet: Fleet) -> None:
    """Kill the whole group: nobody is left to tell the store."""
    group = [fleet.pid, *fleet.children()]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in group:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    fleet.wait()
    eventually(lambda: not any(alive(pid) for pid in group))


def test_its_jobs_run_again_at_once_and_only_those_that_had_begun_count_a_lapse(story: Story):
    handles = story.app.enqueue([story.task("nap").job(n, 0.5) for n in range(60)])
    fleet = story.start(processes=2, threads=5, lease=LEASE)
    eventually(lambda: len(story.ledger("nap")) >= 10)

    kill_at_once(fleet)
    held = [handle.id for handle in handles if handle.state() is State.RUNNING]
    began = len(story.ledger("nap"))
    restarted = time.monotonic()
    again = story.start(processes=2, threads=5, lease=LEASE)
    eventually(lambda: all(story.broker.get(id).attempt > 1 for id in held), SOON)

    assert time.monotonic() - restarted < SOON
    eventually(lambda: story.states(handles) == {State.SUCCEEDED: 60})
    assert 1 <= story.counted()["crashed"] <= began
    assert {id for id, count in story.successes().items() if count == 1} == {h.id for h in handles}
    kill_at_once(again)


def test_elsewhere_only_what_the_last_renewal_named_counts_a_lapse(story: Story, monkeypatch):
    """The other group has no state folder in common: to it this is another host."""
    monkeypatch.setenv("PENSTOCK_STATE", str(story.folder / "elsewhere"))
    other = story.start(processes=1, threads=1, lease=6.0, queues=["none"])
    eventually(story.broker.workers)
    monkeypatch.setenv("PENSTOCK_STATE", str(story.folder / "here"))
    slow = [story.task("nap").enqueue(n, 60.0) for n in range(3)]
    fleet = story.start(processes=1, threads=3, lease=6.0)
    began = {handle.id for handle in slow}
    eventually(lambda: began in [set(row.began or ()) for row in story.broker.workers()])
    [row] = [row for row in story.broker.workers() if set(row.began or ()) == began]
    quick = story.app.enqueue([story.task("nap").job(n) for n in range(40)])
    # As a claim that was carried out and never began.
    held = story.broker.claim([Wanted(row, 40)]).jobs[0]

    kill_at_once(fleet)

    eventually(lambda: {story.broker.get(h.id).lapses for h in slow} == {1}, SOON)
    assert {story.broker.get(job.id).lapses for job in held} == {0}
    assert {story.broker.get(handle.id).state for handle in quick} == {State.READY}
    other.signal(signal.SIGTERM)
    assert other.wait() == 0


@whatever_the_store
def test_a_worker_without_a_state_folder_says_so_and_runs(story: Story, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("a file, and no folder")
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "taken"))
    handle = story.task("nap").enqueue(1)

    fleet = story.start(drain=True)

    assert fleet.wait() == 0
    assert handle.state() is State.SUCCEEDED
    assert fleet.output().count("the state folder cannot be used") == 1
