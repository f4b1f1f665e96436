"""Detached jobs among many starters, adopters that look, and a store that goes away."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import State
from penstock.testing.postgres import Server
from tests.stories.conftest import alive, eventually
from tests.stories.detached_story import PATIENCE, DetachedStory
from tests.stories.suspend import suspend


@pytest.fixture
def story(sqlite_url: str, tmp_path: Path) -> Iterator[DetachedStory]:
    story = DetachedStory(tmp_path, sqlite_url)
    yield story
    story.close()


class Prober(threading.Thread):
    """Looks at who runs what, as adopters do, as often as it can."""

    def __init__(self, story: DetachedStory) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.looks = self.seen = 0
        self._files = story.files
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.001):
            self.looks += 1
            self.seen += sum(run.alive for run in self._files.runs())


def start_many(story: DetachedStory, count: int, patience: float) -> None:
    handles = [story.task("travel").enqueue(0) for _ in range(count)]
    prober = Prober(story)
    fleets = [story.start(drain=True, detached=2) for _ in range(2)]

    for fleet in fleets:
        assert fleet.wait(patience) == 0, fleet.output()
    prober.over.set()

    assert story.states(handles) == {State.SUCCEEDED: count}
    assert len(story.ledger("travel")) == count
    assert set(story.successes().values()) == {1}
    assert not any("another process runs the job" in fleet.output() for fleet in fleets)
    assert prober.seen


def test_starts_while_adopters_look_are_never_taken_for_duplicates(story: DetachedStory):
    """A39, A40: two workers that adopt each other's, and somebody who only looks."""
    start_many(story, 5, 2 * PATIENCE)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_starts_while_adopters_look_are_never_taken_for_duplicates(
    story: DetachedStory,
):
    """A39, A40: the same, a thousand times."""
    start_many(story, 1000, 7000.0)


def test_a_detached_job_outlives_a_restart_of_its_server(own_postgres: Server, tmp_path: Path):
    """A6, C9: PostgreSQL goes away in mid-run and comes back: one run, no second start."""
    story = DetachedStory(tmp_path, own_postgres.create_database())
    try:
        handle = story.task("travel").enqueue(3)
        story.start()
        run = story.run_of(handle.id)
        story.tell("go-0")
        story.wait_for("stop", 1)
        eventually(lambda: story.broker.notes(handle.id, "snapshot"), PATIENCE)

        own_postgres.stop()
        eventually(lambda: "does not answer" in story.log(handle.id), PATIENCE)
        own_postgres.start()
        eventually(story.answers, PATIENCE)
        assert alive(run.pid)
        story.tell("go-1")
        story.tell("go-2")

        assert handle.result(timeout=PATIENCE) == 3
        assert [line[1] for line in story.ledger("stop")] == ["0", "1", "2"]
        assert len(story.ledger("travel")) == 1
    finally:
        story.close()


def test_a_job_that_turns_to_the_store_while_that_is_away_waits_for_it(
    own_postgres: Server, tmp_path: Path
):
    """A12, C9: snapshots, steps, events and jobs to enqueue; none of them fails the attempt."""
    story = DetachedStory(tmp_path, own_postgres.create_database())
    try:
        handle = story.task("report_home").enqueue(7)
        story.start()
        story.wait_for("begun")
        before = story.log(handle.id).count("does not answer, retrying")

        own_postgres.stop()
        story.tell("report")
        story.wait_for("report")
        eventually(
            lambda: story.log(handle.id).count("does not answer, retrying") > before, PATIENCE
        )
        assert not story.ledger("reported")
        own_postgres.start()
        eventually(story.answers, PATIENCE)

        assert handle.result(timeout=PATIENCE) == 7
        assert len(story.ledger("report")) == 1
        story.wait_for("echo")
        kinds = [event.kind for event in story.broker.history(limit=99, job=handle.id)]
        assert kinds.count("attempt") == 1
    finally:
        story.close()


def test_an_attempt_that_was_given_up_while_it_slept_ends_itself(story: DetachedStory):
    """I4, I5: its keeper was stopped for longer than the lease, and somebody else has the job."""
    handle = story.task("travel").enqueue(1)
    fleet = story.start(lease=3.0)
    run = story.run_of(handle.id)
    [line] = story.wait_for("travel")

    suspend([run.pid], story.url)
    eventually(lambda: story.broker.get(handle.id).attempt > 1, PATIENCE, fleet.output())
    # The lock is still held: nobody begins beside it.
    assert len(story.ledger("travel")) == 1
    os.kill(run.pid, signal.SIGCONT)

    eventually(lambda: not alive(run.pid), PATIENCE)
    assert not alive(int(line[-1]))
    story.wait_for("travel", 2)
    story.tell("go-0")
    assert handle.result(timeout=PATIENCE) == 1
    assert len(story.ledger("stop")) == 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_jobs_that_die_at_random_come_to_the_right_totals(story: DetachedStory):
    """A30, A35: and a hundred that raise have a hundred errors."""
    wanderers = [story.task("stumble_on").enqueue(4, seed) for seed in range(20)]
    failing = [story.task("fail").enqueue(n) for n in range(100)]
    began = time.monotonic()
    fleet = story.start(drain=True, detached=4)

    assert fleet.wait(3000) == 0, fleet.output()
    assert [handle.result(timeout=1) for handle in wanderers] == [sum(range(4))] * 20
    counted = Counter((line[1], line[2]) for line in story.ledger("counted"))
    assert set(counted.values()) == {1}
    errors = [story.broker.get(handle.id).error for handle in failing]
    assert all(f"number {n}" in error for n, error in enumerate(errors))
    assert not story.marked(), time.monotonic() - began
