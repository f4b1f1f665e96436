"""kill -9, anywhere: nothing is lost, nothing is settled twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from penstock import State
from tests.stories.conftest import (
    TASKS_FILE,
    Story,
    alive,
    eventually,
    whatever_the_store,
)


def test_a_child_that_is_killed_in_mid_run_loses_nothing(story: Story):
    nap, nap_async = story.task("nap"), story.task("nap_async")
    handles = story.app.enqueue(
        [task.job(n, 0.02) for n in range(200) for task in (nap, nap_async)]
    )
    handles.append(story.task("sleep_at_first").enqueue())
    fleet = story.start(drain=True)

    eventually(lambda: story.ledger("sleep_at_first") and len(story.ledger()) > 40)
    [child] = fleet.children()
    os.kill(child, signal.SIGKILL)

    assert fleet.wait(60) == 0, fleet.output()
    assert story.states(handles) == {State.SUCCEEDED: 401}
    assert set(story.successes().values()) == {1}
    assert "SIGKILL" in fleet.output()
    # Only what ran at that moment counts a lapse: at most 10 hands and 100 slots.
    assert 1 <= story.counted()["crashed"] <= 110
    assert set(story.counted()) == {"crashed"}


def test_a_worker_whose_group_is_killed_on_redis_loses_nothing(redis_store_url, tmp_path: Path):
    """A child first, then the supervisor with its next child; the next worker ends everything."""
    story = Story(tmp_path, redis_store_url)
    handles = story.app.enqueue([story.task("nap").job(n, 0.02) for n in range(200)])
    fleet = story.start()
    eventually(lambda: len(story.ledger("nap")) > 20)
    [child] = fleet.children()
    os.kill(child, signal.SIGKILL)
    eventually(lambda: [each for each in fleet.children() if each != child])
    eventually(lambda: len(story.ledger("nap")) > 60)
    [child] = fleet.children()

    fleet.signal(signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    fleet.wait()

    assert story.start(drain=True).wait(60) == 0
    assert story.states(handles) == {State.SUCCEEDED: 200}
    assert set(story.successes().values()) == {1}
    story.close()


def test_a_child_outlives_its_supervisor_just_to_finish_what_it_has_begun(story: Story):
    handles = story.app.enqueue([story.task("nap").job(n, 1.0) for n in range(20)])
    fleet = story.start(threads=5, lease=1.0)
    eventually(lambda: len(story.ledger("nap")) >= 5)
    [child] = fleet.children()

    fleet.signal(signal.SIGKILL)
    fleet.wait()

    eventually(lambda: not alive(child))
    finished = story.states(handles)
    assert finished[State.SUCCEEDED] >= 5
    assert finished[State.RUNNING] == 0

    assert story.start(drain=True, threads=20).wait() == 0
    assert story.states(handles) == {State.SUCCEEDED: 20}
    assert set(story.successes().values()) == {1}
    assert story.counted() == {}


@whatever_the_store
def test_one_poison_job_among_a_hundred_fails_alone(story: Story):
    poison = story.task("poison")
    handles = [poison.enqueue(n, deadly=n == 50) for n in range(100)]

    fleet = story.start(drain=True)

    assert fleet.wait(60) == 0, fleet.output()
    bad = story.broker.get(handles[50].id)
    assert (bad.state, bad.reason, bad.lapses) == (State.FAILED, "crashed", 3)
    successes = story.successes()
    assert [successes[handle.id] for handle in handles] == [int(n != 50) for n in range(100)]


@whatever_the_store
def test_a_job_that_ends_its_process_as_if_all_was_well_is_stopped_too(story: Story):
    leave, good = story.task("leave").enqueue(), story.task("nap").enqueue(1)

    fleet = story.start(drain=True)

    assert fleet.wait(60) == 0, fleet.output()
    bad = story.broker.get(leave.id)
    assert (bad.state, bad.reason, bad.lapses) == (State.FAILED, "crashed", 3)
    assert good.state() is State.SUCCEEDED


def test_an_at_most_once_job_whose_process_was_killed_is_lost_and_not_run_again(story: Story):
    handles = [story.task("charge").enqueue(n, seconds=3600.0 * (n == 3)) for n in range(6)]
    fleet = story.start(drain=True, threads=1)

    eventually(lambda: [line for line in story.ledger("charge") if line[1] == "3"])
    os.kill(fleet.children()[0], signal.SIGKILL)

    assert fleet.wait() == 0, fleet.output()
    assert Counter(line[1] for line in story.ledger("charge")) == Counter("012345")
    lost = story.broker.get(handles[3].id)
    assert (lost.state, lost.reason) == (State.FAILED, "lost")
    assert story.states(handles) == {State.SUCCEEDED: 5, State.FAILED: 1}


@whatever_the_store
def test_the_death_of_a_jobs_process_is_seen_though_its_forks_live_on(story: Story):
    handle = story.task("die_before_fork").enqueue()
    fleet = story.start(drain=True)

    assert fleet.wait(60) == 0, fleet.output()
    assert (handle.state(), story.broker.get(handle.id).reason) == (State.FAILED, "lost")
    [forked] = story.ledger("forked")
    assert not alive(int(forked[1]))


_PRODUCE = """
import sys
sys.path.insert(0, sys.argv[1])
import story_tasks
from penstock.task import options
options.ROWS_PER_COMMIT = 2_000
app = story_tasks.make_app(sys.argv[2])
rows = ((n,) for n in range(int(sys.argv[3])))
print(app.tasks["nap"].enqueue_many(rows, id="import-7"))
"""


def test_a_producer_that_is_killed_between_writes_goes_on_where_it_stopped(story: Story):
    count = 12_000
    command = [sys.executable, "-c", _PRODUCE, str(TASKS_FILE.parent), story.url, str(count)]
    stored = 0
    for _ in range(3):
        producer = subprocess.Popen(command, env=story.environment(), stdout=subprocess.DEVNULL)
        before = stored
        while producer.poll() is None and stored == before:
            stored = sum(each.ready for each in story.broker.count())
            time.sleep(0.001)
        producer.kill()
        producer.wait()
    stored = sum(each.ready for each in story.broker.count())
    assert 0 < stored <= count

    subprocess.run(command, env=story.environment(), stdout=subprocess.DEVNULL, check=True)

    assert sum(each.ready for each in story.broker.count()) == count
    fleet = story.start(drain=True)
    assert fleet.wait(60) == 0, fleet.output()
    rows = Counter(line[1] for line in story.ledger("nap"))
    assert len(rows) == count
    assert set(rows.values()) == {1}
