"""A crash of the server takes back claims, which are not waited for: nobody settles another's job.

The crash itself is in tests/stories; here its effect is made by hand: the newest lease is gone, its
jobs are ready again, and the next lease gets the same number.
"""

from __future__ import annotations

import psycopg
import pytest

from penstock.job import State, failed, put_back, succeeded, try_again
from penstock.testing.conformance.factories import (
    a_worker,
    begun,
    claim,
    history_of,
    settle_and_claim_for,
    some_jobs,
)

OUTCOMES = {
    "succeeded": lambda now: succeeded(b"1"),
    "failed": lambda now: failed("ValueError"),
    "again": lambda now: try_again("OSError", now + 60),
    "back": lambda now: put_back("shutdown"),
}


def take_back_the_claim(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            """
            with gone as (delete from penstock.lease returning *)
            insert into penstock.parcel (lane, id, jobs, lengths, bodies)
            select lane, encode(substr(firsts, 1, 16), 'hex')::uuid, length(marks), lengths, bodies
              from gone
            """
        )
        admin.execute("delete from penstock.tally where state = 'running'")
        row = admin.execute("select pg_get_serial_sequence('penstock.lease', 'id')").fetchone()
        assert row is not None
        admin.execute("select setval(%s, last_value, false) from penstock.lease_id_seq", row)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("together", [False, True], ids=["settle", "settle and claim"])
def test_the_number_of_a_lost_lease_given_to_another_worker(
    postgres_broker, postgres_store_url, clock, outcome, together
):
    broker = postgres_broker
    mine = some_jobs(clock, 3)
    broker.enqueue(mine)
    lost = claim(broker, 3, worker="worker-1")
    take_back_the_claim(postgres_store_url)
    clock.advance(seconds=1)
    others = some_jobs(clock, 3, task="mail:sweep")
    broker.enqueue(others)
    held = claim(broker, 3, worker="worker-2", tasks={"mail:sweep": 1})
    assert [job.lease[0] for job in held] == [job.lease[0] for job in lost]

    pairs = [(job, begun(OUTCOMES[outcome](clock.now()), clock.now())) for job in lost]
    if together:
        accepted, _ = settle_and_claim_for(broker, pairs, a_worker("worker-1"), limit=0)
    else:
        accepted = broker.settle(pairs)

    assert accepted == [False] * 3
    assert {broker.get(job.id).state for job in mine} == {State.READY}
    assert {broker.get(job.id).state for job in others} == {State.RUNNING}
    assert broker.settle([(job, succeeded()) for job in held]) == [True] * 3
    assert all(len(history_of(broker, job.id)) == 1 for job in others)
    assert len(claim(broker, 10, worker="worker-2")) == 3
