"""A real browser without a screen, before a dashboard of a store that is full of hostile names.

Whatever the browser complains of (a script that was refused, a file that is not there, an error in
a script, a dialog that some name opened) fails the test in which it did.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from penstock.broker.protocol import Broker
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, begun, claim, some_jobs
from penstock.web.access import Role
from tests.web.conftest import Web, served

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing but the pages under test: no update, no account, no look for a network.
SWITCHES = (
    *("--no-first-run", "--disable-gpu", "--disable-sync", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update"),
)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'; drop table job; --",
    "a/b?c=d&e#f%00",
    "\u202egnp.exe",
    "x" * 200,
    "{{ 7 * 7 }}${7*7}",
    "javascript:alert(3)",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = os.environ.get("PENSTOCK_BROWSER") or next(
        (path for name in NAMES if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.exit("no Chromium here: `make test-web` says how to get one", returncode=1)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found,
            args=list(SWITCHES),
            chromium_sandbox=os.geteuid() != 0,  # Chromium has none for root
        )
        yield started
        started.close()


class Visitor:
    """Somebody at a browser, let in with a role."""

    def __init__(self, web: Web, page: Page) -> None:
        self.web = web
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"{error}"))
        page.on("dialog", self._asked)
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        self.answers = True

    def enter(self, role: Role) -> None:
        self.page.goto(f"{self.web.address}/?token={self.web.texts[role]}")

    def go(self, path: str) -> None:
        answer = self.page.goto(self.web.address + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status, self.page.inner_text("body"))

    def places(self) -> list[str]:
        """The pages that the navigation leads to."""
        links = self.page.locator(".top nav a").all()
        return [link.get_attribute("href") or "" for link in links]

    def fits(self) -> None:
        """Nobody has to scroll sideways, once charts have heard how wide the window is."""
        # wait_for_function() polls by eval in the page, which its Content-Security-Policy forbids.
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        for _ in range(50):
            if self.page.evaluate(wide) <= 0:
                return
            self.page.wait_for_timeout(100)
        assert self.page.evaluate(wide) <= 0

    def _heard(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in {"error", "warning"}:
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, dialog: object) -> None:
        kind, text = getattr(dialog, "type", ""), getattr(dialog, "message", "")
        if kind != "confirm":
            self.complaints.append(f"a dialog: {kind} {text}")
        getattr(dialog, "accept" if self.answers else "dismiss")()

    def _failed(self, url: str, why: str | None) -> None:
        if why != "net::ERR_ABORTED":  # of what one left behind on the way to another page
            self.complaints.append(f"{url}: {why}")


@pytest.fixture
def store(broker: Broker, clock) -> Broker:
    """Each store in turn, with jobs of every state and names of every kind."""
    broker.enqueue(some_jobs(clock, 30))
    for name in HOSTILE:
        named = name.replace("\0", "")
        job = a_job(
            clock,
            queue=named[:100],
            task=named[:100],
            key=named,
            tags={"tenant": named},
            body=b'{"args":{"n":12345678901234567890,"html":"<b onclick=alert(4)>x</b>"}}',
        )
        broker.enqueue([job])
        [held] = claim(broker, tasks={job.task: 1})
        outcome = failed(f"Traceback\nValueError: {name}") if len(name) % 2 else succeeded(b"1")
        broker.settle([(held, begun(outcome, clock.now()))])
    broker.put(Rule(RuleKind.PAUSE, HOSTILE[0], None, HOSTILE[1], HOSTILE[2]))
    return broker


@pytest.fixture
def visitor(browser: Browser, store: Broker) -> Iterator[Visitor]:
    """At a desk, as one who may operate."""
    with served(store) as web:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        guest = Visitor(web, context.new_page())
        guest.enter(Role.OPERATE)
        yield guest
        context.close()
    assert guest.complaints == []
