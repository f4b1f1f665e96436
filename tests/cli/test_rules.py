"""pause, resume, block, unblock."""

from __future__ import annotations

import pytest


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
    assert "queue mail runs again: 1 job is let go" in waiting("resume", "mail").stdout
    assert "queue mail was not paused" in waiting("resume", "mail").stdout


def test_a_pause_ends_by_itself(waiting):
    rule = waiting.json("pause", "--task", "shop:send", "--for", "2h")

    assert (rule["task"], rule["queue"], rule["jobs"]) == ("shop:send", None, 1)
    assert rule["until"] > rule["created_at"]
    assert "until 2099-01-01" in waiting("pause", "mail", "--until", "2099-01-01").stdout


def test_block_is_for_operators_and_wins_over_resume(waiting):
    refused = waiting("block", "mail", code=2).stderr
    assert "--admin" in refused
    assert "guard-rail" in refused
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
        (["pause"], "Name a queue, or --task"),
        (["pause", "mail", "--until", "2001-01-01"], "that was"),
        (["pause", "mail", "--for", "soon"], "is not a stretch of time"),
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
