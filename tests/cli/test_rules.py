"""pause, resume, block, unblock."""

from __future__ import annotations

import pytest

from penstock.rules.rule import Rule


@pytest.fixture
def waiting(shop):
    shop("enqueue", "shop:send", "ada")
    shop("enqueue", "shop:add", "1", "2")
    return shop


def test_a_paused_queue_holds_its_jobs_back_until_it_is_resumed(waiting):
    paused = waiting("pause", "mail", "--reason", "provider is down")

    assert "queue mail is paused: 1 job is held back" in paused.stdout
    assert "penstock resume mail" in paused.stderr
    [job] = waiting.lines("find", "queue:mail")
    said = waiting.json("why", job["id"])
    assert said["cause"] == "paused"
    assert "provider is down" in said["sentence"]
    assert waiting("run", "shop:add", "1", "1").stdout == "2\n"
    assert "queue mail runs again: 1 job is released" in waiting("resume", "mail").stdout
    assert "queue mail was not paused" in waiting("resume", "mail").stdout


def test_a_pause_ends_by_itself(waiting):
    rule = waiting.json("pause", "--task", "shop:send", "--for", "2h")

    assert (rule["task"], rule["queue"], rule["jobs"]) == ("shop:send", None, 1)
    assert rule["until"] > rule["created_at"]
    assert "until 2099-01-01" in waiting("pause", "mail", "--until", "2099-01-01").stdout


def test_block_is_for_operators_and_wins_over_resume(waiting):
    refused = waiting("block", "mail", code=2).stderr
    assert "--admin" in refused
    assert "block needs the role admin; " in refused
    assert "prevents mistakes only" in refused
    waiting("pause", "mail")
    waiting("block", "mail", "--admin", "--reason", "disk nearly full")

    resumed = waiting("resume", "mail").stdout
    cleared = waiting.json("unblock", "mail", "--admin")

    assert "still held back by a block" in resumed
    assert "disk nearly full" in resumed
    assert (cleared["cleared"], cleared["held_by"]) == (True, None)
    assert "--admin" in waiting("unblock", "mail", code=2).stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pause"], "pause what? Name a queue, a task, a version, a tag or a key"),
        (["pause", "mail", "--until", "2001-01-01"], "is in the past"),
        (["pause", "mail", "--for", "soon"], "is not a duration"),
        (["pause", "mail", "--for", "2h", "--until", "2099-01-01"], "give one of them"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(waiting, words, sentence):
    assert sentence in waiting(*words, code=2).stderr


def test_words_that_are_no_text_are_kept_as_far_as_they_are(waiting):
    spelt = "half \udcff"

    rule = waiting.json("pause", "mail", "--reason", spelt)

    assert rule["reason"] == "half \ufffd"
    assert "was not paused" in waiting("resume", spelt).stdout
    waiting("find", f"tag.x:{spelt}")
    waiting("cancel", "state:ready", "--reason", spelt, "--yes")


def test_a_limit_is_set_shown_and_taken_back(waiting):
    """V25, V26."""
    for name in ("bob", "eve"):
        waiting("enqueue", "shop:send", name)

    said = waiting("limit", "mail", "--running", "1", "--rate", "100/min", "--reason", "small")

    assert "queue mail is limited to 1 running and 100 starts in 60 s" in said.stdout
    assert "penstock limit mail --off" in said.stderr
    assert [row["limited"] for row in waiting.lines("count") if row["queue"] == "mail"] == [2]
    assert "limited" in waiting("count").stdout
    assert "is removed" in waiting("limit", "mail", "--off").stdout
    assert "had no such limit" in waiting("limit", "mail", "--off").stdout
    assert "limited" not in waiting("count").stdout


def test_a_limit_per_key_stands_beside_that_of_the_queue(waiting):
    waiting("limit", "mail", "--running", "5")
    rule = waiting.json("limit", "mail", "--task", "shop:send", "--rate", "5/30s", "--per-key")

    assert (rule["per_key"], rule["rate"]) == (True, {"jobs": 5, "seconds": 30.0})
    assert len(waiting.store().records(Rule)) == 2
    cleared = waiting.json("limit", "mail", "--task", "shop:send", "--per-key", "--off")
    assert cleared["cleared"] is True


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["limit", "--running", "3"], "limit what? Name a queue, a task or both"),
        (["limit", "mail"], "needs running, rate or both"),
        (["limit", "mail", "--running", "0"], "pause holds back everything"),
        (["limit", "mail", "--rate", "0/s"], "pause holds back everything"),
        (["limit", "mail", "--rate", "often"], "write 10/s, 100/min"),
        (["limit", "mail", "--running", "3", "--off"], "leave out running and rate"),
        (["pause", "--tag", "tenant"], "is not NAME=VALUE"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(waiting, words, sentence):
    assert sentence in waiting(*words, code=2).stderr


def test_jobs_of_one_key_are_paused_after_a_look_at_how_many(waiting):
    waiting("enqueue", "shop:send", "bob", "--key", "bob")

    tried = waiting("pause", "mail", "--key", "bob", "--dry-run").stdout
    assert "this would hold back 1 job now; nothing was changed" in tried
    assert waiting.json("pause", "mail", "--dry-run")["jobs"] == 2
    assert waiting.store().records(Rule) == []
    paused = waiting("pause", "mail", "--key", "bob")

    assert "queue mail and key bob is paused: 1 job is held back" in paused.stdout
    assert "resume mail --key bob" in paused.stderr
    assert "would release 1 job" in waiting("resume", "mail", "--key", "bob", "--dry-run").stdout
    assert "was not paused" in waiting("resume", "mail").stdout
    assert "runs again: 1 job is released" in waiting("resume", "mail", "--key", "bob").stdout


def test_rules_by_tag_and_version_are_set_and_taken_back(waiting):
    for words in (["--tag", "tenant=a"], ["--version", "2"], ["mail", "--task", "shop:send"]):
        waiting("block", *words, "--admin")
    assert len(waiting.store().records(Rule)) == 3

    for words in (["--tag", "tenant=a"], ["--version", "2"], ["mail", "--task", "shop:send"]):
        assert waiting.json("unblock", *words, "--admin")["cleared"] is True


@pytest.mark.parametrize(
    "words",
    [["pause"], ["block", "--admin"], ["limit", "--running", "1"]],
    ids=lambda each: each[0],
)
def test_a_queue_that_nobody_knows_is_warned_about_and_the_rule_is_set(waiting, words):
    command, *options = words

    said = waiting(command, "mial", *options).stderr
    again = waiting(command, "mial", *options).stderr
    known = waiting(command, "mail", *options).stderr

    assert "no job, worker or other rule knows a queue 'mial'; similar: mail" in said
    assert "knows a queue" not in again + known
    assert "knows a task 'shop:sned'; similar: shop:send" in (
        waiting(command, "--task", "shop:sned", *options).stderr
    )
