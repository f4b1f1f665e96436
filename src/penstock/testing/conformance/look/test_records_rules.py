"""Rules: those in force, with who, why and since when."""

from __future__ import annotations

from penstock.rules.rule import Rule, RuleKind

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


def test_every_rule_in_force_is_listed(broker, clock):
    """D36, D59."""
    rules = [
        Rule(PAUSE, "mail", None, "ada", "provider down"),
        Rule(BLOCK, None, "mail:send", "ops", "leak"),
        Rule(PAUSE, "mail", "mail:send"),
        Rule(BLOCK, until=clock.now() + 60),
    ]
    stored = [broker.put(rule) for rule in rules]

    found = broker.records(Rule)

    assert {(r.kind, r.queue, r.task, r.author, r.reason, r.until) for r in found} == {
        (r.kind, r.queue, r.task, r.author, r.reason, r.until) for r in rules
    }
    assert {rule.created_at for rule in found} == {clock.now()}
    assert len(found) == len(stored)


def test_a_rule_whose_time_is_over_is_not_listed(broker, clock):
    broker.put(Rule(PAUSE, queue="mail", until=clock.now() + 60))
    broker.put(Rule(PAUSE, queue="media", until=clock.now() + 600))
    clock.advance(seconds=60)

    assert [rule.queue for rule in broker.records(Rule)] == ["media"]


def test_without_rules_there_are_none(broker):
    assert broker.records(Rule) == []
