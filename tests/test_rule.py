"""Rules: which jobs they cover, and which of several is named."""

from __future__ import annotations

import pytest

from penstock.errors import Refused
from penstock.job import Job, Lane
from penstock.rules.limits import Limits, Room, Use, limit_rule, parse_rate, slack_of
from penstock.rules.rule import (
    Rule,
    RuleKind,
    check_rule,
    covered_by,
    rule_over,
    rule_over_job,
    signed,
)

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


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", (10, 1.0)),
        ("100/min", (100, 60.0)),
        ("5/30s", (5, 30.0)),
        ("1/100ms", (1, 0.1)),
        ("7 / 1.5 h", (7, 5400.0)),
        ("3/d", (3, 86400.0)),
    ],
)
def test_a_rate_is_read_as_people_write_it(text, rate):
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "10", "10/", "/s", "ten/s", "10/year", "-1/s", "1.5/s"])
def test_a_rate_that_is_none_is_refused(text):
    with pytest.raises(Refused, match=r"10/s"):
        parse_rate(text)


def test_a_rule_about_single_jobs_covers_no_lane():
    rules = [Rule(PAUSE, "mail", key="ada"), Rule(BLOCK, tag=("tenant", "a"))]

    assert rule_over(rules, "mail", "mail:send", 0.0, 1) is None
    assert not covered_by(rules, 0.0)("mail", "mail:send", 1)
    assert rule_over_job(rules, Job(task="t", queue="mail", key="ada"), 0.0) is rules[0]
    assert rule_over_job(rules, Job(task="t", tags={"tenant": "a"}), 0.0) is rules[1]
    assert rule_over_job(rules, Job(task="t", queue="mail", key="bob"), 0.0) is None


def test_a_rule_about_a_version_covers_its_lanes():
    rules = [Rule(PAUSE, "mail", version=2)]

    assert rule_over(rules, "mail", "mail:send", 0.0, 2) is rules[0]
    assert rule_over(rules, "mail", "mail:send", 0.0, 1) is None
    assert covered_by(rules, 0.0)("mail", "mail:send", 2)
    assert not covered_by(rules, 0.0)("mail", "mail:send", 1)


def test_a_limit_keeps_nothing_back_as_a_pause_does():
    limit = Rule(RuleKind.LIMIT, "mail", running=1)

    assert rule_over([limit], "mail", "mail:send", 0.0) is None
    assert not covered_by([limit], 0.0)("mail", "mail:send")


def test_what_limits_leave_and_when_there_is_more():
    both = Rule(RuleKind.LIMIT, "mail", running=4, rate=(3, 10.0))
    lane = Lane("mail", "mail:send")
    starts = [(95.0, 2), (89.5, 1), (80.0, 9)]
    limits = Limits([both], lambda _, __: Use(2, starts), 100.0)

    assert limits.room(lane, 9).jobs == 0
    assert limits.room(lane, 9).free_in == pytest.approx(0.5)
    assert limits.room(Lane("media", "mail:send"), 9).jobs == 9
    later = Limits([both], lambda _, __: Use(2, starts), 101.0)
    assert later.room(lane, 9).jobs == 1
    later.took(lane, 1)
    assert later.room(lane, 9).jobs == 0
    assert later.started == {(both, None): 1}
    assert later.start_within(lane) == 1.0


def test_a_start_counts_until_the_whole_window_is_over():
    rate = Rule(RuleKind.LIMIT, "mail", rate=(1, 10.0))  # and a second of slack: 11 s
    lane = Lane("mail", "mail:send")

    def room(now: float) -> int:
        return Limits([rate], lambda _, __: Use(0, [(100.0, 1)]), now).room(lane, 9).jobs

    assert (room(110.9), room(111.0)) == (0, 1)


def test_the_limit_that_is_free_last_is_named_when_several_leave_nothing():
    lane = Lane("mail", "mail:send")
    soon = Rule(RuleKind.LIMIT, "mail", rate=(1, 10.0))
    late = Rule(RuleKind.LIMIT, None, "mail:send", rate=(1, 100.0))
    unknown = Rule(RuleKind.LIMIT, "mail", running=1)

    def named(*rules: Rule) -> Rule | None:
        return Limits(rules, lambda _, __: Use(1, [(99.0, 1)]), 100.0).room(lane, 9).rule

    assert named(soon, late) == named(late, soon) == late
    assert named(soon, unknown) == named(unknown, soon) == unknown
    assert named(soon, soon) == soon


def test_the_first_of_two_limits_that_leave_the_same_is_named():
    lane = Lane("mail", "mail:send")
    rules = [
        Rule(RuleKind.LIMIT, "mail", running=2),
        Rule(RuleKind.LIMIT, None, "mail:send", running=2),
    ]
    some, none = (Limits(rules, lambda _, __, use=use: Use(use, []), 0.0) for use in (1, 2))

    assert some.room(lane, 9).rule == none.room(lane, 9).rule == rules[0]
    assert (some.room(lane, 9).jobs, none.room(lane, 9).jobs) == (1, 0)
    # No limit is the reason where the caller itself wants none.
    assert some.room(lane, 1).rule is None


def test_what_is_free_first_does_not_matter_while_something_is_left():
    soon = Rule(RuleKind.LIMIT, "mail", rate=(2, 10.0))
    late = Rule(RuleKind.LIMIT, None, "mail:send", rate=(2, 100.0))

    room = Limits([soon, late], lambda _, __: Use(0, [(99.0, 1)]), 100.0)

    assert room.room(Lane("mail", "mail:send"), 9)[:2] == (1, soon)


def test_what_starts_counts_for_its_own_key():
    each = Rule(RuleKind.LIMIT, "mail", running=2, per_key=True)
    limits = Limits([each], lambda _, __: Use(0, []), 0.0)
    lane = Lane("mail", "mail:send")

    limits.took(lane, 1, "ada")
    limits.took(lane, 5)  # without a key no limit per key covers them

    assert [limits.room(lane, 9, key).jobs for key in ("ada", "bob")] == [1, 2]
    assert limits.started == {(each, "ada"): 1}


def test_after_a_lowering_several_starts_have_to_pass_before_one_may_start():
    lowered = Rule(RuleKind.LIMIT, "mail", rate=(2, 10.0))
    starts = [(97.0, 1), (95.0, 1), (96.0, 1)]

    room = Limits([lowered], lambda _, __: Use(0, starts), 100.0).room(Lane("mail", "send"), 9)

    assert (room.jobs, room.free_in) == (0, pytest.approx(96.0 + 11.0 - 100.0))


def test_no_end_is_known_if_the_running_limit_is_reached_as_well():
    both = Rule(RuleKind.LIMIT, "mail", running=1, rate=(1, 10.0))

    room = Limits([both], lambda _, __: Use(1, [(99.0, 1)]), 100.0).room(Lane("mail", "send"), 9)

    assert (room.jobs, room.rule, room.free_in) == (0, both, None)


def test_a_rule_keeps_its_author_and_reason_and_gets_what_it_lacks():
    def of(rule: Rule) -> tuple[str, str]:
        named = signed(rule, "ada", "too many")
        return named.author, named.reason

    assert of(Rule(PAUSE, "mail")) == ("ada", "too many")
    assert of(Rule(PAUSE, "mail", author="bob")) == ("bob", "too many")
    assert of(Rule(PAUSE, "mail", reason="a move")) == ("ada", "a move")
    assert of(Rule(PAUSE, "mail", author="bob", reason="a move")) == ("bob", "a move")


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("ms", 0.001), ("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86400)],
)
def test_each_unit_of_a_rate(unit, seconds):
    assert parse_rate(f"7/{unit}") == (7, seconds)
    assert parse_rate(f"7/30{unit}") == (7, 30 * seconds)


def test_the_slack_of_a_rate_is_a_tenth_of_its_window_within_bounds():
    assert [slack_of(seconds) for seconds in (0.1, 5.0, 10.0, 3600.0)] == [0.05, 0.5, 1.0, 1.0]


def test_a_limit_names_a_queue_or_a_task_or_both():
    for queue, task in (("mail", None), (None, "send"), ("mail", "send")):
        rule = limit_rule(queue, task, "ada", "too many", rate="2/s")
        assert rule == Rule(RuleKind.LIMIT, queue, task, "ada", "too many", rate=(2, 1.0))
    with pytest.raises(Refused, match="limit what"):
        limit_rule(None, None, running=1)


def test_where_nothing_is_asked_for_or_no_limit_is_set_there_is_no_reason():
    lane = Lane("mail", "send")
    full = Limits([Rule(RuleKind.LIMIT, "mail", running=1)], lambda _, __: Use(1, []), 0.0)

    assert full.room(lane, 0) == Room(0)
    assert Limits([], lambda _, __: Use(0, []), 0.0).room(lane, 9) == Room(9)


def test_numbers_belong_to_limits_and_limits_to_queues_and_tasks():
    for wrong in (
        {"kind": PAUSE, "running": 3},
        {"kind": BLOCK, "rate": (3, 1.0)},
        {"kind": RuleKind.LIMIT, "running": 1, "key": "ada"},
        {"kind": RuleKind.LIMIT, "running": 1, "tag": ("a", "b")},
    ):
        with pytest.raises(Refused):
            Rule(**wrong)


@pytest.mark.parametrize("policy", ["wait", "skip", "fair"])
def test_an_order_is_about_a_whole_queue_until_it_is_taken_back(policy):
    order = Rule(RuleKind.ORDER, "orders", policy=policy)
    assert order.policy == policy

    for wrong in (
        {"queue": None},
        {"policy": None},
        {"policy": "random"},
        {"until": 100.0},
        {"task": "mail:send"},
        {"key": "ada"},
        {"version": 2},
    ):
        with pytest.raises(Refused, match="order"):
            Rule(**{"kind": RuleKind.ORDER, "queue": "orders", "policy": policy} | wrong)
    with pytest.raises(Refused, match="policy"):
        Rule(PAUSE, "orders", policy=policy)


def test_a_tag_has_a_name_and_both_have_a_bound():
    assert Rule(PAUSE, tag=("t" * 200, "v" * 200)).tag == ("t" * 200, "v" * 200)
    for wrong in (("t" * 201, "v"), ("t", "v" * 201), ("", "v")):
        with pytest.raises(Refused, match="tag"):
            Rule(PAUSE, tag=wrong)


@pytest.mark.parametrize("numbers", [{"running": 2**31}, {"rate": (2**31, 10.0)}])
def test_a_number_that_no_store_can_keep_is_refused_when_it_is_set(numbers):
    check_rule(Rule(RuleKind.LIMIT, "mail", running=2**31 - 1, rate=(2**31 - 1, 10.0)))

    with pytest.raises(Refused, match="2,147,483,648"):
        check_rule(Rule(RuleKind.LIMIT, "mail", **numbers))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(PAUSE), ["--all"]),
        (Rule(PAUSE, "mail", "mail:send"), ["mail", "--task", "mail:send"]),
        (Rule(PAUSE, version=3), ["--version", "3"]),
        (Rule(PAUSE, tag=("a", "b"), key="ada"), ["--tag", "a=b", "--key", "ada"]),
        (Rule(RuleKind.LIMIT, "mail", running=1, per_key=True), ["mail", "--per-key"]),
    ],
)
def test_a_rule_is_said_as_the_command_line_takes_it(rule, words):
    assert rule.words == words


def test_the_history_keeps_what_a_rule_says_and_no_more():
    plain = Rule(PAUSE, "mail", author="ada").data(in_force=True)
    per_key = Rule(RuleKind.LIMIT, "mail", running=2, per_key=True).data(in_force=False)

    assert set(plain) == {"id", "kind", "queue", "task", "author", "reason", "set"}
    assert (plain["queue"], plain["author"], plain["set"]) == ("mail", "ada", True)
    assert (per_key["per_key"], per_key["running"], per_key["set"]) == (True, 2, False)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"running": 1000}, "1,000 running"),
        ({"rate": (5, 10.0)}, "5 starts in 10 s"),
        ({"running": 2, "rate": (5, 10.0)}, "2 running and 5 starts in 10 s"),
        ({"running": 2, "per_key": True}, "2 running, each key on its own"),
    ],
)
def test_the_numbers_of_a_limit_are_said_as_people_say_them(numbers, words):
    assert Rule(RuleKind.LIMIT, "mail", **numbers).bound == words
