"""The line to PostgreSQL is cut at any moment of a stage or a publish: the write is whole, or none.

As in test_cut_postgres: not a message of a verb is left out.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock import StoreUnreachable, UnknownOutcome
from penstock.broker.protocol import Broker
from penstock.brokers.postgres import PostgresBroker
from penstock.enqueue.ids import lasting_id
from penstock.job import Job
from penstock.testing.conformance.factories import a_job, some_jobs
from tests.stories.proxy import Proxy
from tests.trust.test_cut_postgres import each_message, far, proxy, run_all

__all__ = ["far", "proxy"]  # fixtures


def how_many(broker: Broker, jobs: list[Job]) -> int:
    """Those of the jobs that are stored, all of one moment."""
    while True:
        stored = [broker.get(job.id) is not None for job in (*jobs, jobs[0])]
        # The server may still have been committing what it was sent: then look again.
        if stored[0] == stored[-1]:
            return sum(stored[:-1])


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "for good"])
def test_a_publish(
    proxy: Proxy,
    far: PostgresBroker,
    postgres_broker: Broker,
    where: str,
    times: int,
):
    """I1: published, or not, or told that nobody knows; and published again, there once."""
    clock = far.clock
    for number in each_message(proxy):
        write = f"write-{number}"
        jobs = [*some_jobs(clock, 4), a_job(clock, id=lasting_id("row", write), key="ada")]
        far.stage(write, "0/1", jobs)
        far.stage(write, "0/2", some_jobs(clock, 4))
        proxy.cut_nth(number, where, times)

        with suppress(UnknownOutcome, StoreUnreachable):
            far.commit_write(write, {"0/1": 5})
        proxy.heal()

        assert how_many(postgres_broker, jobs) in {0, 5}
        assert far.commit_write(write, {"0/1": 5}).jobs == 5
        assert run_all(postgres_broker, clock) == {job.id: 1 for job in jobs}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_stage(
    proxy: Proxy,
    far: PostgresBroker,
    postgres_broker: Broker,
    where: str,
):
    """I1: staged or not, and staged again, there once."""
    clock = far.clock
    for number in each_message(proxy):
        jobs = [*some_jobs(clock, 4), a_job(clock, id=lasting_id("row", str(number)), key="ada")]
        proxy.cut_nth(number, where)

        with suppress(StoreUnreachable):
            far.stage(f"write-{number}", "0/1", jobs)
        proxy.heal()
        far.stage(f"write-{number}", "0/1", jobs)

        assert far.commit_write(f"write-{number}", {"0/1": 5}).jobs == 5
        assert run_all(postgres_broker, clock) == {job.id: 1 for job in jobs}
