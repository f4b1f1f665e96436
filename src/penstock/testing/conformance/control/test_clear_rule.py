"""Clear a rule: what stood behind it may be handed out again."""

from __future__ import annotations

import json

from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, claim, ids_of

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


def test_what_stood_behind_the_rule_runs(broker, clock):
    """D33."""
    job = a_job(clock)
    broker.enqueue([job])
    broker.put(Rule(PAUSE, queue="default"))
    assert claim(broker) == []

    assert broker.clear(Rule, rule_id(PAUSE, queue="default")) is True

    assert ids_of(claim(broker)) == [job.id]
    assert broker.records(Rule) == []


def test_a_rule_that_is_not_there_is_not_cleared(broker):
    """D50, D58."""
    assert broker.clear(Rule, rule_id(PAUSE, queue="mail")) is False
    broker.put(Rule(PAUSE, queue="mail"))

    assert broker.clear(Rule, rule_id(BLOCK, queue="mail")) is False
    assert broker.clear(Rule, rule_id(PAUSE, task="mail")) is False
    assert broker.clear(Rule, rule_id(PAUSE)) is False
    assert broker.clear(Rule, rule_id(PAUSE, queue="mail", task="mail:send")) is False
    assert broker.clear(Rule, rule_id(PAUSE, queue="mail")) is True
    assert broker.clear(Rule, rule_id(PAUSE, queue="mail")) is False


def test_a_rule_that_ended_by_itself_is_not_there_any_more(broker, clock):
    broker.put(Rule(PAUSE, queue="mail", until=clock.now() + 60))
    clock.advance(seconds=61)

    assert broker.clear(Rule, rule_id(PAUSE, queue="mail")) is False


def test_a_rule_over_everything_is_taken_back(broker, clock):
    broker.enqueue([a_job(clock)])
    broker.put(Rule(BLOCK))
    assert claim(broker) == []

    assert broker.clear(Rule, rule_id(BLOCK)) is True

    assert len(claim(broker)) == 1


def test_the_history_tells_who_took_it_back(broker):
    """D59."""
    broker.put(Rule(PAUSE, queue="mail", task="mail:send", author="ada"))
    broker.clear(Rule, rule_id(PAUSE, queue="mail", task="mail:send"), author="bob")

    event = broker.history()[-1]

    assert event.kind == "rule"
    data = json.loads(event.data)
    assert (data["kind"], data["queue"], data["task"]) == ("pause", "mail", "mail:send")
    assert (data["author"], data["set"]) == ("bob", False)


def test_scheduled_jobs_still_wait_for_their_time(broker, clock):
    broker.enqueue([a_job(clock, run_at=clock.now() + 60)])
    broker.put(Rule(PAUSE, queue="default"))

    broker.clear(Rule, rule_id(PAUSE, queue="default"))

    assert claim(broker) == []
