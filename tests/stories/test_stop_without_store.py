"""SIGTERM while the store is locked or silent: the worker exits in time, and nothing is lost.

A call to the store may take 30 s. A worker that stops does not begin another of that length, and
does not wait for the end of one: its remaining calls share one deadline.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

import psycopg
import pytest

from penstock import State
from penstock.worker import supervisor
from tests.stories.conftest import Fleet, Story, alive, eventually
from tests.stories.proxy import Proxy

GRACE = 1.0
# The deadline, and as much again: the machine is busy. Without it, a stop takes over 50 s.
PATIENCE = 2 * (GRACE + supervisor.LEAVE_SECONDS + supervisor.REPORT_SECONDS)


@contextmanager
def locked(story: Story) -> Generator[None]:
    """Somebody else's transaction, which keeps workers from reading and writing."""
    if story.url.startswith("sqlite"):
        with closing(sqlite3.connect(story.url.removeprefix("sqlite:///"), timeout=30)) as other:
            other.execute("begin immediate")
            yield
            other.rollback()
        return
    with psycopg.connect(story.url) as other:
        other.execute("lock table penstock.worker, penstock.lease, penstock.job, penstock.parcel")
        yield
        other.rollback()


def run_and_kill_a_child(story: Story, fleet: Fleet) -> None:
    """So that the supervisor has something to tell the store, too."""
    children = eventually(lambda: len(fleet.children()) == 2 and fleet.children())
    os.kill(children[0], signal.SIGKILL)
    eventually(lambda: "died" in fleet.output())


def everything_runs(story: Story, handles: list) -> None:
    story.start(grace=GRACE, lease=2.0)
    eventually(lambda: story.states(handles)[State.SUCCEEDED] == len(handles))
    assert all(times == 1 for times in story.successes().values())


def test_a_worker_stops_in_time_while_a_transaction_holds_the_store(story: Story):
    handles = story.app.enqueue([story.task("nap").job(n, 2.0) for n in range(8)])
    fleet = story.start(processes=2, threads=2, grace=GRACE, lease=2.0)
    eventually(lambda: len(story.ledger("nap")) == 4)

    with locked(story):
        run_and_kill_a_child(story, fleet)
        fleet.signal(signal.SIGTERM)
        code = fleet.wait(PATIENCE)
        assert not any(alive(pid) for pid in fleet.children())

    assert code == supervisor.ERROR, fleet.output()
    assert "exiting while the store is away" in fleet.output()
    everything_runs(story, handles)


def test_a_worker_stops_in_time_behind_a_line_on_which_nothing_passes(own_story: Story):
    story = own_story
    with Proxy(story.url) as proxy:
        story.worker_url = proxy.url
        handles = story.app.enqueue([story.task("nap").job(n, 2.0) for n in range(8)])
        fleet = story.start(processes=2, threads=2, grace=GRACE, lease=2.0)
        eventually(lambda: len(story.ledger("nap")) == 4)

        proxy.black_hole()
        run_and_kill_a_child(story, fleet)
        fleet.signal(signal.SIGTERM)

        assert fleet.wait(PATIENCE) == supervisor.ERROR, fleet.output()
    story.worker_url = story.url
    everything_runs(story, handles)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_worker_that_waits_for_its_store_stops_in_time(own_story: Story, signals: int):
    """It has not begun to work: the store was silent from the start."""
    story = own_story
    with Proxy(story.url) as proxy:
        proxy.black_hole()
        story.worker_url = proxy.url
        fleet = story.start(grace=GRACE)
        eventually(lambda: "does not answer" in fleet.output())

        for _ in range(signals):
            fleet.signal(signal.SIGTERM)

        assert fleet.wait(PATIENCE) == supervisor.OK, fleet.output()
