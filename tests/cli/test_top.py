"""penstock top: the overview in a terminal; and history --audit, who did what."""

from __future__ import annotations

import json
import signal

import pytest


@pytest.fixture
def busy(shop):
    """One that failed, two that wait."""
    shop("run", "shop:charge", "4242", code=1)
    shop("enqueue", "shop:send", "ada")
    shop("enqueue", "shop:send", "bob", "--delay", "1h")
    return shop


def test_once_it_shows_queues_workers_and_the_latest_failures(busy):
    said = busy("top", "--once").stdout

    assert "0 busy, 0 idle, 0 detached" in said
    assert "mail" in said
    assert "shop:charge" in said
    assert "RuntimeError: no money" in said
    assert "4242" not in said


def test_for_programs_it_is_one_document_a_look(busy):
    look = busy.json("top", "--once")

    assert {
        row["queue"]: (row["ready"], row["scheduled"], row["failed"]) for row in look["queues"]
    } == {
        "mail": (1, 1, 0),
        "payments": (0, 0, 1),
    }
    assert look["workers"]["busy"] == 0
    assert [failure["task"] for failure in look["latest_failures"]] == ["shop:charge"]
    assert look["ended"] is None


def test_it_goes_on_until_ctrl_c_and_counts_what_ends_meanwhile(busy):
    watching = busy.start("top", "--json", "--every", "0.2")
    try:
        json.loads(watching.stdout.readline())
        busy("run", "shop:add", "1", "2")
        ended = 0.0
        while not ended:
            ended = json.loads(watching.stdout.readline())["ended"]
    finally:
        watching.send_signal(signal.SIGINT)
        said = watching.communicate(timeout=60)

    assert watching.returncode == 130
    assert "Traceback" not in said[1]


def test_without_a_terminal_it_is_drawn_all_the_same_and_ends_cleanly(busy):
    watching = busy.start("top", "--every", "0.2")
    lines = ""
    try:
        while "latest failures" not in lines:
            lines += watching.stdout.readline()
    finally:
        watching.send_signal(signal.SIGINT)
        said = watching.communicate(timeout=60)

    assert watching.returncode == 130
    assert "Traceback" not in said[1]


def test_an_empty_store_says_so(shop):
    shop("run", "shop:add", "1", "2")

    assert "no job is waiting, running or failed" in shop("top", "--once").stdout


def test_the_audit_says_who_did_what_and_why_newest_first(busy):
    [waiting] = busy.lines("find", "queue:mail", "state:ready", "--limit", "1")
    busy("cancel", waiting["id"], "--reason", "wrong address")
    busy("pause", "mail", "--reason", "provider is down")

    rows = busy.lines("history", "--audit")

    assert [(row["kind"], row["reason"]) for row in rows] == [
        ("rule", "provider is down"),
        ("cancel", "wrong address"),
    ]
    assert [row["kind"] for row in busy.lines("history", "--audit", "--kind", "cancel")] == [
        "cancel"
    ]
    assert busy.lines("history", "--audit", "--author", "nobody-of-that-name") == []
    assert [row["kind"] for row in busy.lines("history", "--audit", "--limit", "1")] == ["rule"]
    older = busy.lines("history", "--audit", "--before", rows[0]["position"])
    assert [row["kind"] for row in older] == ["cancel"]
    said = busy("history", "--audit", "--limit", "1")
    assert "provider is down" in said.stdout
    assert "there is more: --before" in said.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--audit", "--follow"], "--audit cannot be combined"),
        (["--kind", "rule"], "need --audit"),
        (["--audit", "--kind", "color"], "does not exist; the kinds are cancel"),
        (["--audit", "--since", "color"], "is not a time"),
    ],
)
def test_what_does_not_go_together_is_refused(busy, words, sentence):
    assert sentence in busy("history", *words, code=2).stderr


def test_what_a_job_says_is_no_order_to_the_terminal(capsys):
    from penstock.cli import output

    output.print_text("no \x1b]0;title\x07\x1b[2J\x9b31m money\r", "red")

    said = capsys.readouterr().out
    assert "no ␛]0;title␛[2J�31m money" in said
    assert not {"\x1b", "\x9b", "\x07", "\r"} & set(said)
