"""Many sessions in one flow on PostgreSQL: none waits in a circle, every job is counted once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.filter import Filter
from penstock.brokers.postgres import PostgresBroker
from penstock.job import ENDED, State, failed, succeeded
from penstock.testing.conformance.factories import a_flow, a_worker, claim_for, part

ROUNDS = 15
WAITING = """
    select pid from pg_stat_activity
     where wait_event_type = 'Lock' and datname = current_database()
"""


@pytest.fixture
def broker(postgres_store_url: str):
    broker = PostgresBroker(postgres_store_url)
    yield broker
    broker.close()


def deadlocks(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        [(number,)] = connection.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        return number


def at_once(*acts: Callable[[], object]) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        try:
            barrier.wait()
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("fields", [{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
@pytest.mark.parametrize("retrying", [False, True], ids=["cancel", "cancel and retry"])
def test_settlements_and_cancels_of_a_flow_do_not_wait_in_a_circle(
    broker, postgres_store_url, fields, retrying
):
    before = deadlocks(postgres_store_url)
    for number in range(ROUNDS):
        flow = a_flow(
            SYSTEM_CLOCK,
            one=part(jobs=4, **fields),
            two=part(jobs=4, **fields),
            three=part("one", jobs=3, **fields),
            four=part("two", "one", jobs=3, on_failure="continue", **fields),
            last=part("three", "four", **fields),
        )
        flow.send(broker)
        everything = [job.id for job in flow.jobs]
        held = [claim_for(broker, a_worker(f"worker-{each}"), None, 2) for each in range(4)]
        ends = [succeeded(b"1") if (number + each) % 3 else failed("no") for each in range(4)]

        at_once(
            *(
                lambda jobs=jobs, end=end: broker.settle([(job, end) for job in jobs])
                for jobs, end in zip(held, ends, strict=True)
            ),
            lambda ids=everything: broker.act("cancel", ids),
            *([lambda ids=everything[::-1]: broker.act("retry", ids)] if retrying else []),
        )

        while jobs := claim_for(broker, a_worker("worker-9"), None, 50):
            broker.settle([(job, succeeded(b"1")) for job in jobs])
        left = {job.id for job in broker.find(Filter(), limit=1000).jobs if job.state not in ENDED}
        if left:  # retried alone, they wait for needs that are as bad as they were
            assert sorted(broker.act("cancel", sorted(left))) == sorted(left)
        row = broker.flow(flow.flow.id)
        assert row.ended_at is not None
        assert [node.jobs_left for node in row.nodes] == [0] * 5
    assert all(not count.total for count in broker.count())
    # A retry may meet a cancel of the same rows on its way: then one of them is tried again.
    assert retrying or deadlocks(postgres_store_url) == before


def test_a_retry_waits_for_whoever_counts_in_its_flow(broker, postgres_store_url):
    """It decides by what is counted afterwards: here, that the job's needs are open again."""
    flow = a_flow(SYSTEM_CLOCK, one=part(), two=part("one", on_failure="continue"))
    flow.send(broker)
    for _ in flow.jobs:
        [job] = claim_for(broker, a_worker(), None, 1)
        broker.settle([(job, failed("no"))])
    two = flow.jobs[1].id
    done: list[str] = []
    retry = threading.Thread(target=lambda: done.extend(broker.act("retry", [two])))

    with psycopg.connect(postgres_store_url) as other:
        other.execute("select id from penstock.flow for update")
        other.execute("update penstock.node set freed = false")
        retry.start()
        with psycopg.connect(postgres_store_url, autocommit=True) as looking:
            while not looking.execute(WAITING).fetchone() and retry.is_alive():
                retry.join(0.01)
        other.commit()
    retry.join()

    assert done == [two]
    assert broker.get(two).state is State.WAITING
