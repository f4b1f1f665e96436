"""rules and freeze: what holds jobs back, and the switch that keeps all workers idle."""

from __future__ import annotations

import json


def test_a_frozen_store_runs_nothing_until_it_is_let_go(shop):
    """D66."""
    shop("enqueue", "shop:send", "ada")
    [job] = [row["id"] for row in map(json.loads, shop("find", "--json").stdout.splitlines())]

    assert "the store is frozen: 1 job" in shop("freeze", "--reason", "a copy").stdout

    assert "The store is frozen by" in shop("why", job).stdout
    assert "`penstock freeze --off` lets it run" in shop("why", job).stdout
    assert "freeze --off" in shop("doctor").stdout
    assert "was not paused" in shop("resume", "--all").stdout
    [rule] = map(json.loads, shop("rules", "--json").stdout.splitlines())
    assert (rule["kind"], rule["queue"], rule["reason"]) == ("block", None, "a copy")
    assert "the store runs again" in shop("freeze", "--off").stdout
    assert "the store was not frozen" in shop("freeze", "--off").stdout
    assert "there are no rules" in shop("rules").stderr


def test_everything_is_paused_and_listed_with_its_id(shop):
    shop("enqueue", "shop:send", "ada")
    shop("limit", "mail", "--running", "3")

    assert "everything is paused: 1 job is held back" in shop("pause", "--all").stdout

    listed = shop("rules")
    ids = [row["id"] for row in map(json.loads, shop("rules", "--json").stdout.splitlines())]
    assert all(id in listed.stdout for id in ids)
    assert "pause of everything" in listed.stdout
    assert "limit of queue mail: 3 running" in listed.stdout
    assert "penstock resume --all" in listed.stderr
    assert "name nothing else" in shop("pause", "mail", "--all", code=2).stderr
    assert "everything runs again: 1 job is released" in shop("resume", "--all").stdout
