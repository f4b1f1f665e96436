"""A worker of several queues: none of them waits for the backlog of another."""

from __future__ import annotations

import pytest

from tests.stories.conftest import Story, eventually, whatever_the_store

QUICK = 0.002  # seconds: jobs that a worker claims ahead, many at a time


def started(story: Story) -> list[str]:
    return [line[1] for line in story.ledger("nap")]


def test_a_single_job_does_not_wait_for_another_queue_s_backlog(story: Story):
    """D64: one thread and jobs of 60 ms; nothing is asked of the user's code but a queue."""
    nap = story.task("nap")
    nap.options(queue="a").enqueue_many([(n, 0.06) for n in range(1, 1001)])
    story.start(threads=1, queues=["a", "b"])
    eventually(lambda: len(started(story)) > 3)

    for single in (-1, -2):
        handle = nap.options(queue="b").enqueue(single)
        before = len(started(story))
        handle.result(timeout=60)
        # One that ran, and one that was claimed before; a busy machine adds a few until the worker
        # has looked. Of the backlog of a thousand, that is nothing.
        assert started(story).index(str(single)) - before <= 15


@whatever_the_store
@pytest.mark.parametrize(
    ("flood", "other", "argument"),
    [
        ("nap", "nap_and_wake", 1),
        ("nap", "crunch", 1),  # in a process of its own
        ("nap", "poison_batch", 1),
        ("nap_async", "nap_once_async", 1),
        ("nap_async", "nap_batch", 0.0),
    ],
)
def test_nor_for_quick_jobs_that_are_claimed_ahead(
    story: Story, flood: str, other: str, argument: float
):
    """Quick jobs have all the hands; another task, of whatever mode, is claimed beside them."""
    story.task(flood).options(queue="a").enqueue_many([(n, QUICK) for n in range(10_000)])
    story.start(threads=1, async_slots=1, queues=["a", "b"])
    eventually(lambda: len(story.ledger(flood)) > 500)

    story.task(other).options(queue="b").enqueue(argument).result(timeout=60)

    assert len(story.ledger(flood)) < 10_000  # the backlog is still there
