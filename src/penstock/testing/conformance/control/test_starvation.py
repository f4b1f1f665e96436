"""Priorities with ageing: higher first, and nothing waits for ever."""

from __future__ import annotations

import pytest

from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, settle

# In its order a key is of its own bucket: these keys are not of one.
SKIP = pytest.param("skip", marks=pytest.mark.needs("order across buckets"))


@pytest.mark.parametrize("policy", [None, "fair", SKIP])
@pytest.mark.scope(of="bucket")
def test_a_low_priority_is_served_within_a_bound(broker, clock, policy):
    """G33, G54: five priorities, always something urgent: ten steps are made up in ten minutes."""
    if policy is not None:
        broker.put(Rule(RuleKind.ORDER, queue="default", policy=policy))
    low = a_job(clock, priority=-5, key="ada")
    broker.enqueue([low])
    waited = None
    for minute in range(15):
        clock.advance(seconds=60)
        urgent = [a_job(clock, priority=p, key=f"{minute}-{p}") for p in (-3, -1, 3, 5)]
        broker.enqueue(urgent)
        for _ in urgent:
            [job] = claim(broker)
            settle(broker, job, succeeded())
            if job.id == low.id:
                waited = minute
        if waited is not None:
            break

    assert waited is not None
    assert 1 <= waited <= 11


@pytest.mark.scope(of="bucket")
def test_among_fresh_jobs_the_higher_priority_goes_first(broker, clock):
    """G33: five priorities."""
    broker.enqueue([a_job(clock, priority=priority) for priority in (0, -5, 10, 5, -10)])

    assert [claim(broker)[0].priority for _ in range(5)] == [10, 5, 0, -5, -10]
