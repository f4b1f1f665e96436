"""The app's name on the command line: given by the project, said where there is one."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def named(shop, monkeypatch):
    """The same tasks twice: of the program "shop", and of one without a name."""
    monkeypatch.delenv("PENSTOCK_APP_NAME", raising=False)
    shop("enqueue", "shop:add", "1", "2")
    (shop.folder / "penstock.toml").write_text('app_name = "shop"\n')
    del sys.modules["shop"]  # as in another process
    shop("enqueue", "shop:add", "3", "4")
    return shop


def test_jobs_say_and_are_found_by_their_app(named):
    assert {(job["app"], job["args"]["a"]) for job in named.lines("find")} == {("", 1), ("shop", 3)}
    [job] = named.lines("find", "app:shop")

    said = named("why", job["id"])

    assert "queue default, app shop" in said.output
    assert named.json("why", job["id"])["job"]["app"] == "shop"


def test_counts_by_task_are_of_one_app_each(named):
    rows = named.lines("count", "--by-task")

    assert [(row["app"], row["task"], row["ready"]) for row in rows] == [
        ("", "shop:add", 1),
        ("shop", "shop:add", 1),
    ]
    assert [row["ready"] for row in named.lines("count")] == [2]
    assert "shop" in named("count", "--by-task").stdout


def test_a_worker_runs_the_jobs_of_its_own_name(named):
    named("worker", "shop:app", "--drain", "--threads", "1")

    assert [(job["app"], job["state"]) for job in named.lines("find", "app:shop")] == [
        ("shop", "succeeded")
    ]
    assert [job["state"] for job in named.lines("find", "-app:shop")] == ["ready"]


@pytest.fixture
def chosen(shop):
    """A project whose penstock.toml names the app."""
    (shop.folder / "penstock.toml").write_text('app = "shop:app"\n')
    return shop


def test_commands_that_need_an_app_take_the_one_of_the_settings(chosen):
    id = chosen("enqueue", "mail.sweep", "2026-11-15T08:00:00Z").stdout.strip()
    chosen("worker", "--drain", "--threads", "1", "--processes", "1")

    assert chosen.json("show", id)["job"]["state"] == "succeeded"
    assert chosen("debug", id, "--json").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [["worker"], ["debug", "0" * 32], ["detached", "run", "0" * 32]],
    ids=lambda each: each[0],
)
def test_without_one_the_refusal_names_both_ways(shop, words):
    said = " ".join(shop(*words, code=2).stderr.split())

    assert 'write app = "myapp:app" into penstock.toml' in said
    assert "myapp:app" in said.partition(", or write")[0]


def test_an_app_that_is_no_text_is_refused(chosen):
    (chosen.folder / "penstock.toml").write_text("app = 7\n")

    assert 'a target, as app = "shop.jobs:app"' in chosen("worker", code=2).stderr


def test_commands_find_the_store_that_the_app_of_the_settings_names(chosen):
    """`penstock find` looked into penstock.db, whatever the program said."""
    source = (chosen.folder / "shop.py").read_text()
    (chosen.folder / "shop.py").write_text(source.replace("App()", 'App("sqlite:///shop.db")'))
    id = chosen("enqueue", "mail.sweep", "2026-11-15T08:00:00Z").stdout.strip()

    found = chosen("find")
    chosen("migrate", "status")

    assert id in found.stdout
    assert "shop.db (App(url) of shop:app" in found.stderr.replace("\n", "")
    assert [job["id"] for job in chosen.lines("find", "--url", "sqlite:///shop.db")] == [id]
    assert not (chosen.folder / "penstock.db").exists()


def test_a_store_that_is_named_needs_no_app_that_can_be_imported(chosen):
    (chosen.folder / "shop.py").write_text("1 / 0\n")

    said = chosen("find", code=2).stderr

    assert "ZeroDivisionError" in said
    assert "--url" in said
    assert "there is no store at" in chosen("find", "--url", "sqlite:///x.db", code=2).stderr
