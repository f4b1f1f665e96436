"""Close: the broker lets go of what it holds open; what it stored is not touched."""

from __future__ import annotations

import threading

import pytest

from penstock.job import State
from penstock.testing.conformance.core.test_wait import LONG, quiet
from penstock.testing.conformance.factories import a_job


def test_closing_twice_is_fine(broker, clock):
    broker.enqueue([a_job(clock)])

    broker.close()
    broker.close()


def test_a_broker_that_was_never_used_can_be_closed(broker):
    broker.close()


def test_closing_after_threads_have_waited_is_fine(broker):
    thread = threading.Thread(target=quiet, args=(broker,))
    thread.start()
    thread.join(LONG)

    broker.close()


@pytest.mark.needs("reopens")
def test_what_was_stored_is_there_when_the_store_is_opened_again(broker, clock, reopen):
    """G11, V2: what was accepted outlives the process."""
    jobs = [a_job(clock), a_job(clock, tags={"tenant": "a"})]
    broker.enqueue(jobs)
    broker.close()

    again = reopen()

    assert [again.get(job.id).state for job in jobs] == [State.READY, State.READY]
    again.close()
