"""A running worker is changed: threads, processes, quiet, stop; and so many processes per queue."""

from __future__ import annotations

import os
import signal

from penstock.broker.worker_settings import WorkerSettings
from penstock.job import State
from tests.stories.conftest import Story, eventually, whatever_the_store


def set_worker(story: Story, **settings: object) -> None:
    story.broker.put(WorkerSettings(worker="w", **settings), "ada", "a story")


def running(story: Story) -> int:
    return sum(count.running for count in story.broker.count())


@whatever_the_store
def test_a_running_worker_is_given_more_threads_and_processes_then_quiet_then_stopped(story: Story):
    # Long enough that only more threads, and more processes, get to run the later ones.
    handles = [story.task("nap").enqueue(n, seconds=600) for n in range(6)]
    fleet = story.start(name="w", threads=1, grace=0.5)
    eventually(lambda: running(story) == 1)
    [first] = fleet.children()

    set_worker(story, threads=2)
    eventually(lambda: running(story) == 2)
    assert fleet.children() == [first]  # nothing was restarted, and what ran goes on
    set_worker(story, processes=2)
    eventually(lambda: running(story) == 4)

    set_worker(story, quiet=True)
    eventually(lambda: [row.quiet for row in story.broker.workers() if row.group] == [True, True])
    set_worker(story, threads=5)
    eventually(lambda: [row.threads for row in story.broker.workers() if row.group] == [5, 5])
    assert running(story) == 4  # quiet: room, and nothing claimed

    set_worker(story, quiet=False, processes=1)
    eventually(lambda: len(fleet.children()) == 1)
    eventually(lambda: running(story) == 5)  # those of the other process were put back, uncounted
    set_worker(story, stop=True)

    assert fleet.wait() == 0, fleet.output()
    assert story.states(handles) == {State.READY: 6}
    assert story.counted() == {}


def test_what_was_set_under_a_name_outlives_a_killed_supervisor(story: Story):
    story.app.enqueue([story.task("nap").job(n, 600.0) for n in range(4)])
    fleet = story.start(name="w", threads=1)
    eventually(lambda: running(story) == 1)
    set_worker(story, threads=2, stop=False)
    eventually(lambda: running(story) == 2)

    fleet.signal(signal.SIGKILL)
    fleet.wait()
    eventually(lambda: not any(row.alive for row in story.broker.workers()))
    again = story.start(name="w", threads=1, grace=0.5)

    eventually(lambda: [r.threads for r in story.broker.workers() if r.alive and r.group] == [2])
    eventually(lambda: running(story) == 2)
    again.signal(signal.SIGTERM)
    assert again.wait() == 0, again.output()


def test_each_queue_has_its_number_of_processes_and_dead_ones_are_replaced(story: Story):
    fleet = story.start(name="w", by_queue={"mail": 2, "images": 1})

    def served() -> list[tuple[str, ...] | None]:
        return sorted(row.queues or () for row in story.broker.workers() if row.alive)

    eventually(lambda: served() == [("images",), ("mail",), ("mail",)])
    rows = {row.pid: row.queues for row in story.broker.workers()}
    dead = next(pid for pid, queues in rows.items() if queues == ("images",))
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: dead not in fleet.children() and len(fleet.children()) == 3)
    eventually(lambda: served() == [("images",), ("mail",), ("mail",)])

    set_worker(story, queues={"mail": 1, "images": 2})
    eventually(lambda: served() == [("images",), ("images",), ("mail",)])
    fleet.signal(signal.SIGTERM)
    assert fleet.wait() == 0, fleet.output()
