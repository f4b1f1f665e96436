"""Hooks for jobs that a command cancels before they run: those of the app that it names."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli

TASKS = """
from pathlib import Path

from penstock import App

app = App()


@app.task
def add(a: int) -> int:
    return a


@app.hook("cancelled")
def note(job, outcome):
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{job.id} {outcome.reason}\\n")
"""


@pytest.fixture
def shop(cli: Cli) -> Cli:
    (cli.folder / "shop.py").write_text(TASKS)
    (cli.folder / "ledger").touch()
    return cli


def enqueued(shop: Cli) -> str:
    shop("enqueue", "shop:add", "1")
    return shop.lines("find", "state:ready")[0]["id"]


@pytest.mark.parametrize("by", ["id", "filter"])
def test_a_command_that_names_the_app_calls_its_hooks(shop, by):
    job = enqueued(shop)
    words = [job] if by == "id" else ["state:ready", "--yes"]

    shop("cancel", *words, "--app", "shop")

    # Called before the command ended, and not merely begun.
    assert (shop.folder / "ledger").read_text() == f"{job} cancelled\n"


def test_a_command_without_the_app_calls_none_and_neither_does_a_worker(shop):
    """The history has it, as the page about hooks says."""
    job = enqueued(shop)

    shop("cancel", job)
    shop("worker", "shop", "--drain", "--threads", "1")

    assert (shop.folder / "ledger").read_text() == ""
    [cancelled] = [row for row in shop.lines("history") if row["kind"] == "cancel"]
    assert cancelled["job"] == job
