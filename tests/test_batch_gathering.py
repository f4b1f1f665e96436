"""Gathering: when a batch is called, and with whom; numbers and chunks only."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.job import Job
from penstock.worker.batch_gathering import BatchSize, Gathering
from penstock.worker.claim_plan import START_SECONDS, ClaimPlan


def gathering(most: int = 3, linger: float = 1.0, *, by_key: bool = False) -> Gathering:
    made = Gathering()
    made.sizes = {"push": BatchSize(most, linger, by_key)}
    return made


def jobs(count: int, **fields: Any) -> list[Job[Any]]:
    return [Job(task="push", **fields) for _ in range(count)]


def test_a_full_one_is_called_at_once_and_the_rest_waits():
    """G34: up to k jobs, or those that came within the linger time."""
    gathered = gathering(most=3, linger=1.0)

    begun, full = gathered.add(jobs(7), 5, 100.0, asynchronous=False)

    assert [len(chunk.jobs) for chunk in begun] == [3, 3, 1]
    assert full == begun[:2]
    assert gathered.room() == {"push": 2}
    assert gathered.due(100.9) == []
    assert gathered.next_due == 101.0
    assert gathered.due(101.0) == begun[2:]
    assert gathered.next_due == math.inf


def test_the_time_counts_from_the_first_job_and_so_do_the_rules():
    gathered = gathering(most=3, linger=1.0)
    [first], _ = gathered.add(jobs(1), 5, 100.0, asynchronous=False)

    begun, full = gathered.add(jobs(1), 6, 100.9, asynchronous=False)

    assert (begun, full) == ([], [])
    assert (first.left, len(first.claimed), first.group.left, first.rules) == (2, 2, 2, 5)
    assert gathered.due(101.0) == [first]


def test_each_key_has_its_own_until_nobody_can_join_any_more():
    """By key a worker holds four batches' worth at most; then it waits for nobody."""
    gathered = gathering(most=2, linger=60.0, by_key=True)
    for n in range(7):
        gathered.add(jobs(1, key=f"key-{n}"), 1, 100.0, asynchronous=False)
    assert gathered.room() == {"push": 1}
    assert gathered.due(100.0) == []

    gathered.add(jobs(1, key="key-7"), 1, 100.0, asynchronous=False)

    assert gathered.room() == {"push": 0}
    assert len(gathered.due(100.0)) == 8


def test_under_a_rate_none_waits_longer_than_it_may():
    gathered = gathering(linger=60.0)

    gathered.add(jobs(1, start_within=2.0), 1, 100.0, asynchronous=False)

    assert gathered.next_due == 101.0


def test_what_is_withdrawn_is_not_called_and_what_is_empty_is_forgotten():
    gathered = gathering(linger=1.0)
    first, second = jobs(2)
    [chunk], _ = gathered.add([first, second], 1, 100.0, asynchronous=False)

    assert gathered.withdraw({first.id}) == [(chunk, [first])]
    assert list(chunk.jobs) == [second]
    assert gathered.withdraw({second.id}) == [(chunk, [second])]
    assert gathered.due(200.0) == []
    assert gathered.room() == {"push": 3}


@pytest.mark.parametrize("mode", ["thread", "async"])
def test_a_call_takes_one_hand_or_slot_whatever_it_is_for(mode: str):
    claims = ClaimPlan(2, 2, processes=False, apart=True)
    claims.set_tasks({"push": mode}, {"push": BatchSize(10, 0.0, by_key=False)})
    [request] = claims.requests(0.0)
    assert (request.limit, request.sizes) == (10, {"push": 10})

    [chunk] = claims.take(jobs(10), request, 1, 0.0)

    assert (claims.busy, claims.async_jobs) == ((1, 0) if mode == "thread" else (0, 1))
    assert chunk.start_until == START_SECONDS
    claims.ended(chunk, 10, 1.0)
    claims.hand_freed(chunk)
    claims.settled(chunk, 10)
    assert (claims.busy, claims.async_jobs, claims.running(), claims.live) == (0, 0, 0, {})


def test_one_that_failed_or_lapsed_before_is_called_alone():
    """G34: a poison is never with others again, see docs/decisions/0007."""
    claims = ClaimPlan(10, 10, processes=False, apart=True)
    claims.set_tasks({"push": "thread"}, {"push": BatchSize(10, 60.0, by_key=False)})
    [request] = claims.requests(0.0)

    chunks = claims.take([*jobs(2), *jobs(1, failures=1), *jobs(1, lapses=1)], request, 1, 0.0)

    assert [(len(chunk.jobs), chunk.as_batch) for chunk in chunks] == [(1, False), (1, False)]
    assert claims.gathering.room() == {"push": 8}


def test_with_no_free_hand_nothing_is_gathered():
    claims = ClaimPlan(1, 1, processes=False, apart=True)
    claims.set_tasks({"push": "thread"}, {"push": BatchSize(10, 0.0, by_key=False)})
    claims.busy = 1

    assert claims.requests(0.0) == []
