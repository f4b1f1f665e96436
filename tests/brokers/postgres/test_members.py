"""Many jobs of one node, settled on the way to the next claim: one call, and every job counted."""

from __future__ import annotations

import pytest

from penstock.brokers.postgres.settling import PostgresSettlements
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_worker,
    claim_for,
    ids_of,
    part,
    settle_and_claim_for,
)

MAP, BATCH = 250, 50


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever is settled in a transaction of several statements is noted here."""
    seen: list[str] = []
    settle_on = PostgresSettlements.settle_on
    monkeypatch.setattr(
        PostgresSettlements, "settle_on", lambda *given: seen.append("") or settle_on(*given)
    )
    return seen


def test_they_are_counted_on_the_way_until_the_last_frees_what_follows(
    postgres_broker, clock, monkeypatch
):
    flow = a_flow(clock, work=part(jobs=MAP), last=part("work"))
    flow.send(postgres_broker)
    slow = calls_of(monkeypatch)
    jobs = claim_for(postgres_broker, a_worker(), limit=BATCH)
    left = []

    while len(jobs) == BATCH:
        pairs = [(job, succeeded(b"1")) for job in jobs]
        accepted, jobs = settle_and_claim_for(postgres_broker, pairs, a_worker(), limit=BATCH)
        assert accepted == [True] * BATCH
        left.append(flow.row(postgres_broker, "work").jobs_left)

    assert left == [200, 150, 100, 50, 0]
    assert len(slow) < len(left)  # the last, and those that came in two leases
    assert ids_of(jobs) == flow.ids("last")
    assert postgres_broker.settle([(jobs[0], succeeded())]) == [True]
    assert postgres_broker.flow(flow.flow.id).ended_at == clock.now()
    assert postgres_broker.count() == []


def test_told_twice_it_is_counted_once(postgres_broker, clock):
    flow = a_flow(clock, work=part(jobs=MAP), last=part("work"))
    flow.send(postgres_broker)
    jobs = claim_for(postgres_broker, a_worker(), limit=BATCH)
    pairs = [(job, succeeded(b"1")) for job in jobs]
    postgres_broker.settle(pairs[:20])

    accepted, more = settle_and_claim_for(postgres_broker, pairs, a_worker(), limit=BATCH)
    again, none = settle_and_claim_for(postgres_broker, pairs, a_worker(), limit=0)

    assert accepted == [False] * 20 + [True] * 30
    assert again == [False] * BATCH
    assert len(more) == BATCH
    assert none == []
    assert flow.row(postgres_broker, "work").jobs_left == MAP - BATCH


def test_a_job_that_failed_among_them_is_counted_as_such(postgres_broker, clock):
    flow = a_flow(clock, work=part(jobs=MAP), last=part("work"))
    flow.send(postgres_broker)
    jobs = claim_for(postgres_broker, a_worker(), limit=MAP)
    ends = [failed("no") if place == 7 else succeeded(b"1") for place in range(MAP)]

    pairs = list(zip(jobs, ends, strict=True))
    for start in range(0, MAP, BATCH):
        settle_and_claim_for(postgres_broker, pairs[start : start + BATCH], a_worker(), limit=1)

    row = flow.row(postgres_broker, "work")
    assert (row.jobs_left, row.bad) == (0, 1)
    assert flow.states(postgres_broker, "last") == [State.CANCELLED]


def test_two_nodes_in_one_lease(postgres_broker, clock):
    flow = a_flow(clock, one=part(jobs=40), two=part(jobs=40), last=part("one", "two"))
    flow.send(postgres_broker)
    jobs = claim_for(postgres_broker, a_worker(), limit=60)
    pairs = [(job, succeeded(b"1")) for job in jobs]

    accepted, more = settle_and_claim_for(postgres_broker, pairs, a_worker(), limit=60)

    assert accepted == [True] * 60
    rest = [(job, succeeded(b"1")) for job in more]
    assert ids_of(settle_and_claim_for(postgres_broker, rest, a_worker(), limit=60)[1]) == flow.ids(
        "last"
    )
