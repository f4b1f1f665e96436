"""verify: the history of a store, checked; what contradicts it is named, with code 1."""

from __future__ import annotations

import sqlite3
from contextlib import closing


def test_a_history_that_contradicts_nothing(shop):
    shop("run", "shop:add", "1", "2")

    said = shop("verify").stdout
    answer = shop.json("verify", "--json")

    assert "BROKEN" not in said
    assert "holds   every slot of a schedule is decided once" in said
    assert (answer["ok"], answer["contradictions"], answer["seen"]["attempts"]) == (True, [], 1)


def test_a_job_that_ended_twice_is_named(shop):
    shop("run", "shop:add", "1", "2")
    with closing(sqlite3.connect(shop.folder / "penstock.db")) as store:
        store.execute(
            "insert into penstock_history (kind, at, job, lane, attempt, state, worker, started_at)"
            " select kind, at + 9, job, lane, attempt + 1, state, worker, at + 1"
            " from penstock_history where kind = 'attempt'"
        )
        store.commit()

    said = shop("verify", code=1).stdout
    [found] = shop.json("verify", "--json", code=1)["contradictions"]

    assert "BROKEN  a job that has ended has no further attempt" in said
    assert found["subject"] in said
    assert found["invariant"] == "ended once"
