"""A child as its supervisor sees it: when it is cut off from the store, and what its row says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import App
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job
from penstock.worker.child import ChildConfig
from penstock.worker.child_process import FROZEN_SECONDS, Child, row_of
from penstock.worker.running_slots import Flag, RunningSlots, Vitals

SILENCE = 4.0
CONFIG = ChildConfig(
    target="no_such_module:app",
    id="worker-1",
    slots=-1,
    control=-1,
    words=-1,
    threads=2,
    async_slots=1,
    queues=None,
    tags=(),
    lease=15.0,
    grace=1.0,
    drain=False,
    retention=None,
)


@pytest.fixture
def child() -> Iterator[Child]:
    """One whose process has ended by itself, so that the test alone writes its slots."""
    child = Child(CONFIG, RunningSlots.make(3), 0.0)
    child.process.wait()
    yield child
    child.close()


def reached(child: Child, at: float) -> None:
    """It was ready, and the store answered it at this time."""
    child.slots.publish(Vitals(reached_at=at, flags=Flag.READY))


def beat(child: Child, *times: float) -> None:
    """It had a pulse, and its supervisor looked, at these times."""
    for at in times:
        child.slots.beat()
        child.seconds_without_pulse(at)


def test_it_is_cut_off_once_it_alone_has_not_reached_the_store_for_so_long(child):
    began = child.began
    beat(child, began + 0.5)
    reached(child, began + 1)

    assert not child.is_cut_off(began + 0.9 + SILENCE, began, SILENCE)
    assert child.is_cut_off(began + 1 + SILENCE, began, SILENCE)
    assert not child.is_cut_off(began + 1 + SILENCE, None, SILENCE), "nobody reaches the store"
    assert not child.is_cut_off(began + 1 + SILENCE, began + 2, SILENCE), "nobody did until now"


def test_one_that_was_frozen_has_as_long_again_once_it_has_a_pulse(child):
    """It could not have reached the store meanwhile, and needs a moment."""
    reached(child, child.began)
    woke = child.began + 10 * SILENCE
    beat(child, child.began)
    assert child.seconds_without_pulse(woke) >= FROZEN_SECONDS
    beat(child, woke + 0.1, woke + 0.2)

    assert not child.is_cut_off(woke + 0.2, child.began, SILENCE)
    assert child.is_cut_off(woke + 0.1 + SILENCE, child.began, SILENCE)


def test_its_row_names_the_jobs_that_have_begun(child):
    """A child whose interpreter is held cannot: its supervisor reads it from the slots."""
    begun, ended = Job(task="send", attempt=1), Job(task="send", attempt=1)
    child.slots.hold(0, ended, 0.0)
    child.slots.hold(1, begun, 0.0)
    child.slots.free(0)

    row = row_of(child, App(broker=MemoryBroker()), CONFIG)

    assert (row.id, row.began) == ("worker-1", (begun.id,))
