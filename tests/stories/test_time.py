"""Leases and timeouts against jobs that hold on, and processes that stand still."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing

import pytest

from penstock import State
from tests.stories.conftest import Story, alive, eventually, whatever_the_store
from tests.stories.suspend import suspend


def test_a_job_ten_times_longer_than_the_lease_that_holds_the_interpreter_runs_once(story: Story):
    first = story.start(lease=0.5)
    second = story.start(lease=0.5)
    handle = story.task("hold").enqueue(5.0)

    assert handle.result(timeout=60) == "held"

    assert len(story.ledger("hold")) == 1
    assert [event.attempt for event in story.attempts(handle.id)] == [1]
    assert (first.process.poll(), second.process.poll()) == (None, None)


def test_a_fleet_that_stands_still_beyond_its_lease_cannot_settle_afterwards(story: Story):
    """V6: a job begins twice where its worker did not answer, and ends once."""
    morning = story.folder / "morning"
    handle = story.task("nap_until").enqueue(str(morning), 1)
    first = story.start(lease=1.0, threads=1)
    eventually(lambda: any(handle.id in row.began for row in story.broker.workers()))
    stopped = [first.pid, *first.children()]
    suspend(stopped, story.url)

    second = story.start(lease=1.0, threads=1)
    eventually(lambda: len(story.ledger("nap_until")) == 2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    morning.touch()

    assert handle.result(timeout=60) == 1
    eventually(lambda: "was refused" in first.output(), what=first.output())
    second.signal(signal.SIGTERM)
    first.signal(signal.SIGTERM)
    assert (first.wait(), second.wait()) == (0, 0)
    assert story.successes() == {handle.id: 1}
    assert story.counted() == {"crashed": 1}


@pytest.mark.parametrize("story", ["sqlite"], indirect=True)
def test_an_outage_longer_than_the_lease_gives_nobody_up(story: Story):
    """On PostgreSQL the server stands still: test_never_deaf_postgres."""
    fleets = [story.start(lease=1.0, threads=3) for _ in range(2)]
    handles = story.app.enqueue([story.task("nap").job(n, 4.0) for n in range(6)])
    eventually(lambda: len(story.ledger("nap")) == 6)

    with closing(sqlite3.connect(story.folder / "jobs.db", isolation_level=None)) as connection:
        connection.execute("begin immediate")  # nobody else can write
        time.sleep(2.5)
        connection.execute("rollback")

    assert sorted(handle.result(timeout=60) for handle in handles) == list(range(6))
    assert len(story.ledger("nap")) == 6
    assert story.counted() == {}
    assert [fleet.process.poll() for fleet in fleets] == [None, None]


@whatever_the_store
@pytest.mark.parametrize(
    "name", ["spin", "swallow", "sleep_for_ever", "hold_for_ever", "block_loop"]
)
def test_a_job_that_never_returns_is_ended_at_its_timeout_and_its_neighbours_succeed(
    story: Story, name: str
):
    handle = story.task(name).enqueue()
    neighbours = [story.task("nap").enqueue(n, seconds=0.7) for n in range(5)]
    neighbours += [story.task("nap_async").enqueue(n, seconds=0.7) for n in range(5)]

    fleet = story.start(drain=True, threads=6, grace=3)

    assert fleet.wait() == 0, fleet.output()
    assert [(event.state, event.reason) for event in story.attempts(handle.id)] == [
        (State.FAILED, "timeout")
    ]
    assert len(story.ledger(name)) == 1
    assert story.states(neighbours) == {State.SUCCEEDED: 10}
    assert story.counted() == {"timeout": 1}


@whatever_the_store
def test_a_process_that_ignores_sigterm_is_killed_at_its_timeout(story: Story):
    handle = story.task("deaf_process").enqueue()
    good = story.task("crunch").enqueue(1)

    fleet = story.start(drain=True)

    assert fleet.wait() == 0, fleet.output()
    assert [event.reason for event in story.attempts(handle.id)] == ["timeout"]
    assert good.state() is State.SUCCEEDED
    [(_, _, pid, _)] = story.ledger("deaf_process")
    assert not alive(int(pid))


@whatever_the_store
def test_a_process_is_told_by_sigterm_before_it_is_killed(story: Story):
    handle = story.task("warned_process").enqueue()

    fleet = story.start(drain=True)

    assert fleet.wait() == 0, fleet.output()
    assert [event.reason for event in story.attempts(handle.id)] == ["timeout"]
    [(_, _, pid, _)] = story.ledger("warned_process")
    [(_, _, warned, _)] = story.ledger("warned")
    assert warned == pid
    assert not alive(int(pid))


@whatever_the_store
def test_a_running_process_is_ended_when_its_job_is_cancelled(story: Story):
    handle = story.task("deaf_process").options(timeout=600).enqueue()
    fleet = story.start()
    [(_, _, pid, _)] = eventually(lambda: story.ledger("deaf_process"))

    handle.cancel()

    eventually(lambda: handle.state() is State.CANCELLED)
    assert not alive(int(pid))
    assert fleet.process.poll() is None


@whatever_the_store
def test_a_child_above_its_memory_limit_is_replaced_and_loses_nothing(story: Story):
    fleet = story.start(max_memory=150 << 20)
    [before] = eventually(fleet.children)
    grown = story.task("grow").enqueue(150)
    assert grown.result(timeout=60) == before

    eventually(lambda: fleet.children() and before not in fleet.children())
    after = story.task("grow").enqueue(1).result(timeout=60)

    assert after != before
    assert "another takes its place" in fleet.output()
    assert story.counted() == {}
