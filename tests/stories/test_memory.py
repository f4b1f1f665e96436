"""A worker that looks after its store for long does not grow: nothing it keeps is kept for ever."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from penstock import State
from penstock.broker.protocol import Broker
from penstock.job import succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, a_schedule, a_worker, begun, claim
from penstock.worker.upkeep import Upkeep
from tests.stories.conftest import Load, Story, eventually, whatever_the_store

HOUR = 3600.0
TURN = 5.0
RETENTION = 300.0
MEGABYTE = 1 << 20


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.fixture(autouse=True)
def nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever runs these tests keeps every line that is logged, and would grow by that."""
    caplog.set_level("CRITICAL", "penstock.worker")


def look_after(broker: Broker, clock: Clock, hours: float) -> list[int]:
    """Chores, slots of a schedule, jobs and a worker that dies now and then; objects over time.

    It is the clock's time: a day takes as long as its chores do.
    """
    broker.put(a_schedule("often", every=60.0))
    upkeep = Upkeep(broker, clock, "keeper", retention=RETENTION)
    turns = int(hours * HOUR / TURN)
    seen: list[int] = []
    for turn in range(turns):
        clock.advance(seconds=TURN)
        broker.renew([a_worker("keeper")])
        upkeep.run_due()
        broker.enqueue([a_job(clock, key=f"key-{turn}")])
        if turn % 7:
            done = begun(succeeded(b"1"), clock.now())
            jobs = claim(broker, 10, worker=f"worker-{turn}")
            broker.settle([(job, done) for job in jobs])
            broker.recover(dead=f"worker-{turn}", started=[])
        else:
            claim(broker, 1, worker="doomed")  # and not heard of again, until its next life
        if turn % 60 == 59:
            upkeep.close(60.0)
            broker.prune(clock.now() - RETENTION)
        if turn >= turns // 4 and turn % (turns // 20) == 0:
            seen.append(objects())
    upkeep.close(60.0)
    return seen


def flat(seen: list[int], slack: float) -> bool:
    """Whether the last third is as high as the first, but for this much."""
    third = len(seen) // 3
    return min(seen[-third:]) <= max(seen[:third]) + slack


def test_half_an_hour_of_chores_leave_nothing_behind(broker, clock):
    """G60: no round overlaps another, and no map only grows."""
    seen = look_after(broker, clock, hours=0.5)

    assert flat(seen, 400), seen


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_day_of_chores_leaves_nothing_behind(broker, clock):
    """G60: twenty-four hours of the clock's time."""
    seen = look_after(broker, clock, hours=24)

    assert flat(seen, 400), seen


def work_on(story: Story, seconds: float) -> list[int]:
    """The memory of a worker under load, with chores every third of a second; five times a second.

    Its first third is left out: pools, caches and plans fill up then.
    """
    fleet = story.start(lease=1.0, threads=4, grace=5.0)
    load = Load(story, pause=0.05, size=20)
    eventually(story.successes, what="no job was run")
    [child] = fleet.children()
    seen: list[int] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.2)
        seen.append(resident(child))
    accepted = load.stop()
    eventually(
        lambda: not sum(count.total for count in story.broker.count()),
        timeout=60 + seconds,
        what="jobs are left",
    )
    assert fleet.children() == [child], "it was replaced meanwhile"
    assert accepted
    assert story.broker.get(accepted[-1]).state is State.SUCCEEDED
    return seen[len(seen) // 3 :]


def test_a_worker_with_its_chores_does_not_grow(story: Story):
    """G60: the shortened run."""
    seen = work_on(story, seconds=5)

    assert flat(seen, 24 * MEGABYTE), seen


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_worker_with_its_chores_does_not_grow_for_long(story: Story):
    """G60: ten minutes."""
    seen = work_on(story, seconds=600)

    assert flat(seen, 24 * MEGABYTE), [size // MEGABYTE for size in seen[::50]]


@whatever_the_store
def test_ten_thousand_failing_jobs_neither_end_their_worker_nor_make_it_grow(story: Story):
    """B12: one process runs them all, and is no larger after the last than after a third."""
    story.task("fail").enqueue_many([(n,) for n in range(10_000)])
    fleet = story.start(threads=4, lease=15.0)
    eventually(fleet.children, what="no child was started")
    [child] = fleet.children()
    seen: list[tuple[int, int]] = []  # jobs that are left, and the memory then
    while not seen or seen[-1][0]:
        time.sleep(0.05)
        left = sum(count.total for count in story.broker.count())
        seen.append((left, resident(child)))

    sizes = [size for left, size in seen if left < 6_700]
    assert flat(sizes, 8 * MEGABYTE), seen
    assert fleet.children() == [child], "it was replaced meanwhile"
    ended = {event.job for event in story.broker.history(limit=20_000) if event.reason == "error"}
    assert len(ended) == 10_000
