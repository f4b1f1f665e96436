"""Whoever works on a flow of three levels dies at any message to PostgreSQL: it ends by its policy.

What a server hears of a process that was killed is that its line is closed. So the line is cut for
good, at the first message, the second, and so on until the flow ends before; then another goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from penstock import State, StoreUnreachable, UnknownOutcome
from penstock.broker.protocol import Broker
from penstock.brokers.postgres import PostgresBroker
from penstock.job import ENDED, failed, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import Parts, a_flow, a_worker, begun, claim_for, part
from tests.stories.conftest import eventually
from tests.stories.proxy import Proxy

MOST_MESSAGES = 200
FOR_GOOD = 100_000
LEVELS = ("first", "middle", "last")
SESSIONS = (
    "select pid from pg_stat_activity where datname = current_database() "
    "and pid <> pg_backend_pid() and backend_type = 'client backend'"
)


@pytest.fixture
def proxy(postgres_store_url: str) -> Iterator[Proxy]:
    with Proxy(postgres_store_url) as proxy:
        yield proxy


def three_levels(clock: Clock, policy: str) -> Parts:
    fields = {"on_failure": policy}
    return a_flow(
        clock,
        first=part(jobs=3, **fields),
        middle=part("first", jobs=2, **fields),
        last=part("middle", **fields),
    )


def work_on(broker: Broker, clock: Clock, flow: Parts, worker: str) -> None:
    """From the producer's call to the last end; one job of the first level fails."""
    flow.send(broker)
    bad = flow.ids("first")[1]
    while jobs := claim_for(broker, a_worker(worker), None, 2):
        outcomes = [failed("ValueError") if job.id == bad else succeeded(b"1") for job in jobs]
        pairs = zip(jobs, outcomes, strict=True)
        assert all(broker.settle([(job, begun(end, clock.now())) for job, end in pairs]))


def sessions(url: str) -> set[int]:
    with psycopg.connect(url, autocommit=True) as looker:
        return {pid for (pid,) in looker.execute(SESSIONS)}


def rest(url: str, others: set[int]) -> None:
    """Until the server has heard all that the dead one said, and that nobody is there any more."""
    eventually(lambda: sessions(url) <= others)


@pytest.mark.parametrize("where", [pytest.param("before", marks=pytest.mark.soak), "after"])
@pytest.mark.parametrize("policy", ["cancel", "continue"])
def test_it_ends_as_its_policy_says(proxy, postgres_store_url, postgres_broker, policy, where):
    """G14, G30: wherever the one before was killed; nothing is lost, and nothing ends twice."""
    clock = postgres_broker.clock
    expected = {
        "first": [State.SUCCEEDED, State.FAILED, State.SUCCEEDED],
        "middle": [State.CANCELLED if policy == "cancel" else State.SUCCEEDED] * 2,
        "last": [State.CANCELLED if policy == "cancel" else State.SUCCEEDED],
    }
    for number in range(MOST_MESSAGES):
        flow, others = three_levels(clock, policy), sessions(postgres_store_url)
        doomed = PostgresBroker(proxy.url, clock=clock)
        proxy.cut_nth(number, where, FOR_GOOD)
        with suppress(StoreUnreachable, UnknownOutcome):
            work_on(doomed, clock, flow, "worker-1")
        killed = proxy.cuts > 0
        proxy.heal()
        doomed.close()
        rest(postgres_store_url, others)

        postgres_broker.recover(dead="worker-1", started=[])
        work_on(postgres_broker, clock, flow, "worker-2")

        assert {level: flow.states(postgres_broker, level) for level in LEVELS} == expected
        row = postgres_broker.flow(flow.flow.id)
        assert row.ended_at is not None
        assert [node.jobs_left for node in row.nodes] == [0, 0, 0]
        ends = Counter(
            event.job
            for job in flow.jobs
            for event in postgres_broker.history(job=job.id)
            if event.state in ENDED
        )
        assert set(ends.values()) == {1}
        if not killed:
            assert number > 10
            return
    pytest.fail("there was no end to it")
