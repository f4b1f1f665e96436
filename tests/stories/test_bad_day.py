"""Ten things go wrong in a shop: each is found from a terminal alone, in at most two commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from penstock.cli.root import root
from tests.stories.bad_day import bad_day


class Search(NamedTuple):
    """What somebody types, and what the last answer must say: the cause, and the way out."""

    commands: tuple[str, ...]
    says: tuple[str, ...]
    row: str = ""  # the line of the first answer whose id goes into the second command


FAILED = "find state:failed state:cancelled"
SEARCHES = {
    "a task raises": Search(
        (FAILED, "show ID"),
        ("Declined: order 1: the card was declined for 19.90", "gateway.py:13", "penstock retry"),
        row="shop.jobs:charge",
    ),
    "a queue is paused": Search(
        ("why mail",), ("the provider is down; 1 job is held back", "penstock resume mail")
    ),
    "a limit holds jobs back": Search(
        ("why media",),
        ("has a limit of 1 running", "1 job is held back", "penstock limit media --off"),
    ),
    "no worker has the task": Search(
        ("why invoices",), ("1 job of office:invoice waits", "no live worker knows it")
    ),
    "a job waits for another": Search(
        ("find state:waiting", "why flow:ID"),
        ("shop.jobs:reserve", "no blue teapot is in stock", "waits for its retry"),
        row="shop.jobs:ship",
    ),
    "a process crashes": Search(
        (FAILED, "why ID"), ("crashed", "died: SIGABRT"), row="shop.jobs:thumbnail"
    ),
    "arguments of an older release": Search(
        (FAILED, "why ID"),
        ("missing required field `language`", "penstock copy"),
        row="shop.jobs:newsletter",
    ),
    "a job expires": Search(
        (FAILED, "why ID"),
        ("it expired before a worker started it", "penstock retry"),
        row="shop.jobs:hold",
    ),
    "a schedule skips its slots": Search(
        ("why reprice",), ("skipped: overlap", "It runs on worker", "penstock show")
    ),
    "a backlog": Search(
        ("why search",),
        ("29 ready, 1 running", "its oldest due job waited ", "more --threads"),
    ),
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return request.getfixturevalue("own_store_url")


def answer(command: str) -> str:
    result = CliRunner().invoke(root, command.split())
    assert result.exit_code in {0, 1}, result.output
    return result.output


def asked(search: Search) -> str:
    """The last answer."""
    first, *then = search.commands
    said = answer(first)
    for command in then:
        [row] = [line for line in said.splitlines() if f" {search.row} " in line]
        said = answer(command.replace("ID", row.split()[0]))
    return re.sub(r"\s+", " ", said)


def test_whatever_goes_wrong_is_found_in_two_commands(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Issue 22: on SQLite, and on PostgreSQL by changing the URL."""
    monkeypatch.setenv("PENSTOCK_URL", url)
    with bad_day(tmp_path / "project", url) as day:
        monkeypatch.chdir(day.folder)
        answers = {name: asked(search) for name, search in SEARCHES.items()}

    missing = {
        name: (answers[name], wanted)
        for name, search in SEARCHES.items()
        if (wanted := [words for words in search.says if words not in answers[name]])
    }
    assert missing == {}
    assert all(len(search.commands) <= 2 for search in SEARCHES.values())
