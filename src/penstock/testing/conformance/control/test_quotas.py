"""Quotas: a store's part of a limit that counts over several. Runs on every broker that can."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.broker.quota import LimitUse, Quota
from penstock.broker.shard_map import ShardMap
from penstock.enqueue.ids import BUCKETS
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle, some_jobs

pytestmark = pytest.mark.needs("quotas")
LIMIT = Rule(RuleKind.LIMIT, queue="default", running=10, rate=(20, 60.0), created_at=1.0)


def a_quota(version: int = 1, running: int = 3, rate: int = 5, **fields) -> Quota:
    given = {"limit": LIMIT, "dealer": "one", **fields}
    return Quota(version=version, running=running, rate=rate, **given)


def test_a_part_counts_as_any_limit_does(broker, clock):
    broker.enqueue(some_jobs(clock, 9))
    kept = broker.put(a_quota())

    first = claim(broker, limit=9)

    assert (len(first), kept) == (3, a_quota())
    assert broker.records(Quota) == [kept]
    assert [(rule.running, rule.rate) for rule in broker.records(Rule)] == [(3, (5, 60.0))]
    assert broker.settle([(job, succeeded()) for job in first]) == [True] * 3
    assert len(claim(broker, limit=9)) == 2  # of the rate


def test_a_part_of_nothing_lets_nothing_start(broker, clock):
    broker.enqueue(some_jobs(clock, 3))
    broker.put(a_quota(running=0, rate=0))
    assert claim(broker, limit=9) == []
    [count] = broker.count()
    assert (count.ready, count.limited) == (0, 3)

    broker.put(a_quota(2))

    assert len(claim(broker, limit=9)) == 3


def test_a_lower_version_and_another_of_the_same_change_nothing(broker):
    broker.put(a_quota(2))

    assert broker.put(a_quota(1, running=9)) == a_quota(2)
    assert broker.put(a_quota(2, running=9, dealer="two")) == a_quota(2)
    assert broker.put(a_quota(2)) == a_quota(2)

    assert broker.put(a_quota(3, running=9)).running == 9


def test_a_limit_that_is_lowered_lets_none_start_above_it(broker, clock):
    broker.enqueue(some_jobs(clock, 9))
    broker.put(a_quota())
    taken = claim(broker, limit=2)

    broker.put(a_quota(2, running=2))

    assert claim(broker, limit=9) == []
    assert settle(broker, taken[0], succeeded())
    assert len(claim(broker, limit=9)) == 1


def test_a_part_takes_the_place_of_a_rule_and_leaves_none_when_it_is_cleared(broker, clock):
    broker.put(msgspec.structs.replace(LIMIT, author="ada"))
    broker.put(a_quota(running=4))
    assert [rule.running for rule in broker.records(Rule)] == [4]

    broker.put(a_quota(2, cleared=True))

    assert broker.records(Rule) == []
    assert broker.put(a_quota(1)).cleared


def test_the_history_tells_of_the_limit_and_not_of_its_parts(broker, clock):
    broker.put(a_quota(limit=msgspec.structs.replace(LIMIT, author="ada")))
    broker.put(a_quota(2, running=7, limit=msgspec.structs.replace(LIMIT, author="ada")))
    broker.put(a_quota(3, cleared=True, limit=msgspec.structs.replace(LIMIT, author="bob")))

    told = [json.loads(row.data) for row in broker.history() if row.kind == "rule"]

    assert [(row["author"], row["set"], row["running"]) for row in told] == [
        ("ada", True, 10),
        ("bob", False, 10),
    ]


def test_uses_are_who_runs_how_many_and_when_they_started(broker, clock):
    broker.enqueue(some_jobs(clock, 4))
    broker.put(a_quota())
    broker.put(Rule(RuleKind.LIMIT, queue="default", running=9, per_key=True))
    [first, *_] = claim(broker, limit=2)
    clock.advance(seconds=10)
    claim(broker, limit=1, worker="worker-2")
    assert settle(broker, first, succeeded())
    clock.advance(seconds=5)

    [use] = broker.limit_uses()

    assert use.rule == LIMIT.id
    assert use.running == {"worker-1": 1, "worker-2": 1}
    assert [(round(ago, 3), jobs) for ago, jobs in sorted(use.starts)] == [(5.0, 1), (15.0, 2)]


def test_without_a_limit_nothing_is_used(broker, clock):
    broker.enqueue([a_job(clock)])
    claim(broker)

    assert broker.limit_uses() == list[LimitUse]()


def test_a_limit_of_nothing_is_no_quota(broker):
    with pytest.raises(Refused, match="a limit of 0 running"):
        broker.put(a_quota(limit=msgspec.structs.replace(LIMIT, running=0)))


@pytest.mark.needs("moves")
def test_a_store_that_buckets_leave_has_no_part_until_it_gets_one(broker, clock):
    shards = ShardMap(fleet="one", shard="a", ranges=((0, "a"),))
    broker.put(shards)
    jobs = some_jobs(clock, 4)
    broker.enqueue(jobs)
    broker.put(a_quota())
    running = claim(broker, limit=2)

    assert broker.take_out(range(BUCKETS), "b").departures

    [left] = broker.records(Quota)
    assert (left.running, left.rate, left.version) == (0, 0, 1)
    assert [(rule.running, rule.rate) for rule in broker.records(Rule)] == [(0, (0, 60.0))]
    [use] = broker.limit_uses()
    assert (use.running, sum(count for _, count in use.starts)) == ({}, 2)
    assert not broker.get_many(ids_of(running))
