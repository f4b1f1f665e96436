"""Set the options of a queue: what is declared, what overrides it, and the rules that follow."""

from __future__ import annotations

import json

import pytest

from penstock.broker.queue_options import Options, QueueOptions
from penstock.enqueue.codec import RetryWire
from penstock.errors import Refused
from penstock.rules.key_order import policies
from penstock.rules.rule import Rule, RuleKind
from penstock.task.retry import Repeat


def declared(queue="mail", app="", code="one", **options):
    return QueueOptions(queue=queue, app=app, declared=Options(**options), code=code)


def override(queue="mail", reset=(), **options):
    return QueueOptions(queue=queue, override=Options(**options), reset=reset)


def rules(broker):
    return [(rule.kind, rule.queue, rule.running, rule.policy) for rule in broker.records(Rule)]


def told(broker):
    rows = [json.loads(row.data or b"") for row in broker.history() if row.kind == "queue"]
    return [(row["says"], row["options"], row["author"]) for row in rows]


def test_options_are_kept_as_they_were_put_apart_by_program(broker, clock):
    retry = RetryWire(limit=None, delay=1.0, min=0.5)
    options = {"timeout": 60.0, "retry": retry, "on_timeout": Repeat(limit=2), "keep": None}

    kept = broker.put(declared(**options))
    other = broker.put(declared(app="media", timeout=5.0))

    assert kept == QueueOptions(
        queue="mail", declared=Options(**options), code="one", declared_at=clock.now()
    )
    assert broker.records(QueueOptions) == [kept, other]


def test_an_override_stands_over_every_declaration_until_it_is_reset(broker, clock):
    broker.put(declared(timeout=60.0, keep=5.0))
    broker.put(override(timeout=9.0), author="ada", reason="slow")
    broker.put(override(crash_budget=7), author="bob", reason="crashes")
    clock.advance(seconds=1)

    kept = broker.put(declared(timeout=30.0, code="two"))

    assert kept.effective == Options(timeout=9.0, crash_budget=7)
    assert (kept.declared, kept.code, kept.replaced) == (Options(timeout=30.0), "two", ("one",))
    assert (kept.author, kept.reason) == ("bob", "crashes")
    part = broker.put(override(reset=("timeout",)), author="ada")
    assert part.override == Options(crash_budget=7)
    whole = broker.put(override(reset=("crash_budget",)), author="ada")
    assert (whole.override, whole.author, whole.effective) == (None, "", Options(timeout=30.0))


def test_only_a_change_is_told_and_changes_the_version_of_the_rules(broker):
    before = broker.traits.rules_version()

    for _ in range(2):
        broker.put(declared(timeout=60.0))
        broker.put(override(timeout=9.0), author="ada")

    assert told(broker) == [
        ("declared", {"timeout": 60.0}, ""),
        ("set", {"timeout": 9.0}, "ada"),
    ]
    after = broker.traits.rules_version()
    assert after != before
    broker.put(declared(timeout=60.0))
    assert broker.traits.rules_version() == after


@pytest.mark.needs("limits across buckets")
def test_order_and_limits_hold_by_rules_that_follow(broker):
    broker.put(declared(order="wait", running=5))
    assert sorted(rules(broker)) == [
        (RuleKind.LIMIT, "mail", 5, None),
        (RuleKind.ORDER, "mail", None, "wait"),
    ]

    broker.put(override(order="skip", running=2), author="ada")
    assert sorted(rules(broker)) == [
        (RuleKind.LIMIT, "mail", 2, None),
        (RuleKind.ORDER, "mail", None, "skip"),
    ]

    broker.put(override(reset=("order", "running")))
    assert policies(broker.records(Rule)) == {"mail": "wait"}
    broker.put(declared(order=None))
    assert rules(broker) == []


@pytest.mark.needs("limits across buckets")
def test_a_rule_that_a_person_set_outlives_declarations(broker):
    broker.put(declared(running=5))
    broker.put(Rule(RuleKind.LIMIT, "mail", running=1), author="ada", reason="provider")

    broker.put(declared(running=9, code="two"))
    assert rules(broker) == [(RuleKind.LIMIT, "mail", 1, None)]

    assert broker.clear(QueueOptions, "mail")
    assert rules(broker) == [(RuleKind.LIMIT, "mail", 1, None)]


@pytest.mark.needs("limits across buckets")
def test_cleared_options_take_their_rules_along(broker):
    broker.put(declared(order="fair", running=5))

    assert broker.clear(QueueOptions, "mail", "ada", "gone")
    assert not broker.clear(QueueOptions, "mail")

    assert (broker.records(QueueOptions), rules(broker)) == ([], [])
    assert told(broker)[-1] == ("removed", {"order": "fair", "running": 5}, "ada")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (declared("mail\n"), "a name has 1 to 200 characters"),
        (declared(lease=1.0), "a lease of 1 s: 5 s or more"),
        (declared(running=2**31), "up to 2,147,483,647"),
        (override(reset=("colour",)), "'colour' is no option of a queue; there are lease, keep"),
    ],
)
def test_what_no_store_can_keep_is_refused(broker, record, sentence):
    with pytest.raises(Refused, match=sentence):
        broker.put(record)

    assert broker.records(QueueOptions) == []
