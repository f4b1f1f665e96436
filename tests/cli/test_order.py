"""order: how a queue is handed out by key."""

from __future__ import annotations

import pytest


@pytest.fixture
def shop(shop):
    shop("enqueue", "shop:send", "ada")
    return shop


def test_an_order_is_set_shown_and_taken_back(shop):
    assert "queue mail is not ordered" in shop("order", "mail").stdout
    set_now = shop("order", "mail", "wait", "--reason", "their ledger")
    assert 'queue mail is ordered="wait" now' in set_now.stdout
    assert "penstock order mail --off" in set_now.stderr
    assert shop.json("order", "mail")["policy"] == "wait"

    assert "queue mail is not ordered now" in shop("order", "mail", "--off").stdout
    assert shop.json("order", "mail", "fair")["policy"] == "fair"


def test_another_policy_is_refused_while_one_stands(shop):
    shop("order", "mail", "wait")

    refused = shop("order", "mail", "skip", code=2).stderr

    assert 'ordered="wait" in the store' in refused
    assert "--off" in refused
    assert "leave out skip" in shop("order", "mail", "skip", "--off", code=2).stderr
    assert "there are wait, skip, fair" in shop("order", "media", "fifo", code=2).stderr
