"""Rules: which jobs they cover, and which of several is named."""

from __future__ import annotations

import pytest

from penstock.rule import Rule, RuleKind, covered_by, rule_over

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (Rule(PAUSE, "mail"), True),
        (Rule(PAUSE, "media"), False),
        (Rule(PAUSE, None, "mail:send"), True),
        (Rule(PAUSE, None, "mail:sweep"), False),
        (Rule(PAUSE, "mail", "mail:send"), True),
        (Rule(PAUSE, "mail", "mail:sweep"), False),
        (Rule(PAUSE, "media", "mail:send"), False),
        (Rule(PAUSE), True),
        (Rule(PAUSE, "mail", until=101.0), True),
        (Rule(PAUSE, "mail", until=100.0), False),
    ],
)
def test_a_rule_covers_a_queue_a_task_or_both_until_its_time(rule, holds):
    """D7, D36."""
    assert rule.holds("mail", "mail:send", 100.0) is holds


def test_a_block_is_named_before_a_pause():
    """D57: block wins."""
    pause, block = Rule(PAUSE, "mail"), Rule(BLOCK, None, "mail:send")

    assert rule_over([pause, block], "mail", "mail:send", 0.0) is block
    assert rule_over([block, pause], "mail", "mail:send", 0.0) is block
    assert rule_over([pause, block], "mail", "mail:sweep", 0.0) is pause
    assert rule_over([pause, block], "media", "mail:sweep", 0.0) is None
    assert rule_over([], "mail", "mail:send", 0.0) is None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(PAUSE, "mail"), "queue mail"),
        (Rule(PAUSE, None, "mail:send"), "task mail:send"),
        (Rule(PAUSE, "mail", "mail:send"), "queue mail and task mail:send"),
        (Rule(PAUSE), "everything"),
    ],
)
def test_a_rule_says_what_it_is_about(rule, words):
    assert rule.target == words


def test_many_queues_and_tasks_are_asked_about_at_once(clock):
    now = clock.now()
    rules = [
        Rule(RuleKind.PAUSE, queue="mail"),
        Rule(RuleKind.BLOCK, task="media:resize"),
        Rule(RuleKind.PAUSE, queue="old", until=now - 1),
        Rule(RuleKind.PAUSE, queue="both", task="a:b"),
    ]

    covered = covered_by(rules, now)

    assert covered("mail", "mail:send")
    assert covered("media", "media:resize")
    assert covered("both", "a:b")
    assert not covered("both", "a:c")
    assert not covered("old", "mail:send")
    assert not covered_by([], now)("mail", "mail:send")
    assert covered_by([Rule(RuleKind.PAUSE)], now)("any", "thing")
