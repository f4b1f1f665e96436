"""Close: the broker lets go of what it holds open; what it stored is not touched."""

from __future__ import annotations

import threading

from penstock.job import State
from tests.brokers.test_wait import LONG, quiet
from tests.factories import a_job


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


def test_what_was_stored_is_there_when_the_store_is_opened_again(sqlite_broker, clock, tmp_path):
    """G11, V2: what was accepted outlives the process."""
    from penstock.brokers.sqlite import SqliteBroker

    jobs = [a_job(clock), a_job(clock, tags={"tenant": "a"})]
    sqlite_broker.enqueue(jobs)
    sqlite_broker.close()

    again = SqliteBroker(tmp_path / "jobs.db", clock=clock)

    assert [again.get(job.id).state for job in jobs] == [State.READY, State.READY]
    again.close()
