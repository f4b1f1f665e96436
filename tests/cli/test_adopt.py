"""adopt: a clone of a store stays idle in another environment, until somebody adopts it there."""

from __future__ import annotations

import shutil

import pytest

VARIABLE = "PENSTOCK_ENVIRONMENT"


@pytest.fixture
def cloned(shop, monkeypatch):
    """The store of production with a job in it, and its clone, which is a store of staging."""
    monkeypatch.setenv(VARIABLE, "production")
    shop("enqueue", "shop:add", "1", "2")
    shop("adopt")
    shop.store().close()  # the last one to close it leaves all in one file
    shutil.copy(shop.folder / "penstock.db", shop.folder / "clone.db")
    monkeypatch.setenv(VARIABLE, "staging")
    monkeypatch.setenv("PENSTOCK_URL", "sqlite:///clone.db")
    return shop


def test_a_worker_of_another_environment_refuses_to_start(cloned):
    """D66."""
    said = cloned("worker", "shop", "--drain", code=2).stderr

    assert "is of the environment 'production', and this process is of 'staging'" in said
    assert "`penstock adopt`" in said
    # Who only looks, or enqueues, goes on; a command that would run the job itself does not.
    assert cloned.json("count")["ready"] == 1
    cloned("enqueue", "shop:add", "3", "4")
    assert cloned.json("count")["ready"] == 2
    assert "of 'staging'" in cloned("run", "shop:add", "5", "6", code=2).stderr
    assert "of 'staging'" in cloned("manager", "--listen", "127.0.0.1:0", code=2).stderr
    assert [row for row in cloned.lines("history") if row["kind"] == "attempt"] == []


def test_a_worker_without_an_environment_does_not_run_what_is_of_one(cloned, monkeypatch):
    monkeypatch.delenv(VARIABLE)

    said = cloned("worker", "shop", "--drain", code=2).stderr

    assert "this process is of no environment (PENSTOCK_ENVIRONMENT is not set)" in said
    assert "set PENSTOCK_ENVIRONMENT" in cloned("adopt", code=2).stderr


def test_an_adopted_clone_runs_and_the_history_says_who_did_it(cloned):
    adopted = cloned.json("adopt", "--reason", "a copy of last night")

    assert adopted == {"environment": "staging", "before": "production"}
    process = cloned.start("worker", "shop", "--processes", "1", "--drain")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    rows = cloned.lines("history")
    [_, row] = [row["data"] for row in rows if row["kind"] == "environment"]
    assert (row["environment"], row["before"]) == ("staging", "production")
    assert row["reason"] == "a copy of last night"
    [_, entry] = sorted(cloned.lines("history", "--audit"), key=lambda each: each["position"])
    assert entry["author"] == row["author"] != ""
    assert "adopted the store" in cloned("history", "--audit").stdout


def test_a_store_of_no_environment_runs_anywhere(cloned, monkeypatch):
    assert "it was of production" in cloned("adopt", "--off").stdout
    monkeypatch.delenv(VARIABLE)

    process = cloned.start("worker", "shop", "--processes", "1", "--drain")

    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said


def test_a_profile_is_an_environment_and_the_default_one_is_none(shop, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    (shop.folder / "penstock.toml").write_text(
        '[profiles.default]\nurl = "sqlite:///d.db"\n[profiles.live]\nurl = "sqlite:///l.db"\n'
    )
    for words in ((), ("--profile", "live")):
        shop("enqueue", "shop:add", "1", "2", *words)
        assert "environment" not in shop("doctor", *words, code=1).stdout  # nobody ran a job
        shop("run", "shop:add", "1", "2", *words)

    assert "environment" not in shop("doctor").stdout
    assert "environment   live" in shop("doctor", "--profile", "live").stdout
    said = shop("worker", "shop", "--drain", "--url", "sqlite:///l.db", code=2).stderr
    assert "of the environment 'live'" in said


def test_the_doctor_says_that_a_store_was_copied_and_no_more(cloned):
    said = cloned("doctor", code=1).stdout

    assert "environment   production, by " in said
    assert "workers of another one do not start" in said
    assert "in another file, when it became that of production" in said
    cloned("adopt")
    assert "in another file" not in cloned("doctor", code=1).stdout
