"""What goes wrong in the shop of tests/stories/bad_day.py is found in at most three clicks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page

from penstock.brokers import open_broker
from penstock.operate.roles import Role
from tests.stories.bad_day import bad_day
from tests.web.conftest import served

pytestmark = pytest.mark.browser


class Search(NamedTuple):
    """What is clicked from the overview on, and what the page must say then."""

    clicks: tuple[str, ...]  # CSS selectors; `row:TEXT` is the link in the row with that text
    says: tuple[str, ...]


def nav(title: str) -> str:
    return f".top nav a:text-is('{title}')"


FAILED = "a[href*='state%3Afailed']"
CANCELLED = ".chips a:text-is('cancelled')"
SEARCHES = {
    "a task raises": Search(
        (FAILED, "row:shop.jobs:charge"), ("the card was declined for 19.90", "gateway.py:13")
    ),
    "a queue is paused": Search((nav("Queues"), "row:mail"), ("the provider is down", "Resume")),
    "a limit holds jobs back": Search((nav("Queues"), "row:media"), ("1 limited", "Remove")),
    "no worker has the task": Search(
        (nav("Health"),), ("office:invoice", "no live worker knows it")
    ),
    "a job waits for another": Search(
        (nav("Flows"), "main tbody a", "a.node"), ("no blue teapot is in stock",)
    ),
    "a process crashes": Search((FAILED, "row:shop.jobs:thumbnail"), ("crashed", "SIGABRT")),
    "arguments of an older release": Search(
        (FAILED, "row:shop.jobs:newsletter"), ("missing required field", "penstock copy")
    ),
    "a job expires": Search(
        (nav("Jobs"), CANCELLED, "row:shop.jobs:hold"), ("it expired before a worker started it",)
    ),
    "a schedule skips its slots": Search((nav("Schedules"), "row:reprice"), ("skipped: overlap",)),
    "a backlog": Search((nav("Queues"), "row:search"), ("29 ready", "wait of the oldest due job")),
}


def click(page: Page, what: str) -> None:
    if what.startswith("row:"):
        row = page.locator("tr", has_text=what.removeprefix("row:"))
        row.locator("a").first.click()
    else:
        page.locator(what).first.click()
    page.wait_for_load_state("networkidle")


def test_whatever_goes_wrong_is_found_in_three_clicks(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Issue 22, from the dashboard."""
    url = f"sqlite:///{tmp_path}/shop.db"
    missing: dict[str, tuple[list[str], str]] = {}
    with bad_day(tmp_path / "project", url):
        broker = open_broker(url)
        with served(broker, url=url) as web:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"{web.address}/queues?token={web.texts[Role.OPERATE]}")
            for name, search in SEARCHES.items():
                page.goto(f"{web.address}/", wait_until="load")
                for what in search.clicks:
                    click(page, what)
                text = re.sub(r"\s+", " ", page.inner_text("main"))
                if lacks := [words for words in search.says if words not in text]:
                    missing[name] = (lacks, text[:1500])
            page.close()
        broker.close()

    assert missing == {}
    assert all(len(search.clicks) <= 3 for search in SEARCHES.values())
