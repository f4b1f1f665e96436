"""The last look before a start: rules that came since the claim, and rates that wait for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim
from penstock.worker.start_check import StartCheck

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


@pytest.fixture
def claimed(memory_broker: MemoryBroker, clock):
    memory_broker.enqueue([a_job(clock, key="ada", tags={"tenant": "a"})])
    [job] = claim(memory_broker)
    return job


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule(PAUSE, key="ada"), "paused"),
        (Rule(BLOCK, tag=("tenant", "a")), "blocked"),
        (Rule(PAUSE, version=1), "paused"),
        (Rule(PAUSE, key="bob"), None),
        (Rule(PAUSE, tag=("tenant", "b")), None),
        (Rule(PAUSE, version=2), None),
        (Rule(RuleKind.LIMIT, "default", running=1), None),
    ],
    ids=str,
)
def test_a_rule_that_came_since_the_claim_is_obeyed(memory_broker, claimed, rule, reason):
    start_check = StartCheck(memory_broker)
    version = start_check.version()

    memory_broker.put(rule)

    outcome = start_check.last_look(version, claimed)
    assert (outcome and outcome.reason) == reason


class Unreadable(MemoryBroker):
    """A store that says that its rules have changed, and then does not answer."""

    def records(self, kind: Any) -> Any:
        raise StoreUnreachable("nobody answers")


def test_while_the_rules_cannot_be_read_nothing_starts(clock):
    broker = Unreadable(clock)
    broker.enqueue([a_job(clock)])
    [job] = claim(broker)
    start_check = StartCheck(broker)

    outcome = start_check.last_look(start_check.version() - 1, job)

    assert outcome is not None
    assert (outcome.reason, outcome.failures, outcome.lapses) == ("rules unknown", 0, 0)


def test_a_job_under_a_rate_begins_soon_after_its_claim_or_is_put_back(memory_broker, clock):
    """Its window counts it from the claim: begun much later, another window would have too many."""
    memory_broker.put(Rule(RuleKind.LIMIT, "default", rate=(5, 1.0)))
    memory_broker.enqueue([a_job(clock)])
    [job] = claim(memory_broker)
    start_check = StartCheck(memory_broker)

    clock.advance(seconds=0.09)
    assert start_check.last_look(start_check.version(), job) is None
    clock.advance(seconds=0.02)
    outcome = start_check.last_look(start_check.version(), job)

    assert outcome is not None
    assert (outcome.reason, outcome.failures, outcome.lapses) == ("not started in time", 0, 0)
