"""Rules version: a number that changes with the rules, cheap to look at before every start."""

from __future__ import annotations

from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, a_schedule, claim

PAUSE = Rule(RuleKind.PAUSE, queue="mail")


def test_it_stays_while_the_rules_do(broker, clock):
    before = broker.traits.rules_version()

    broker.enqueue([a_job(clock)])
    claim(broker)

    assert broker.traits.rules_version() == before


def test_it_changes_with_every_rule_set_or_cleared(broker):
    seen = [broker.traits.rules_version()]

    broker.put(PAUSE)
    seen.append(broker.traits.rules_version())
    broker.put(Rule(RuleKind.BLOCK, task="mail:send"))
    seen.append(broker.traits.rules_version())
    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))
    seen.append(broker.traits.rules_version())

    assert len(set(seen)) == 4


def test_clearing_what_is_not_there_changes_nothing(broker):
    before = broker.traits.rules_version()

    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))

    assert broker.traits.rules_version() == before


def test_a_schedule_that_is_put_changes_it(broker):
    before = broker.traits.rules_version()

    broker.put(a_schedule())

    after = broker.traits.rules_version()
    assert after != before
    broker.put(a_schedule())
    assert broker.traits.rules_version() == after
