"""Health: examined when somebody asks and no other time, with the doctor's own findings."""

from __future__ import annotations

import threading

import pytest

from penstock.brokers import open_broker
from penstock.examine import Colour, Finding
from penstock.rule import Rule, RuleKind
from penstock.web.access import Role
from penstock.web.examining import Examining
from tests.factories import some_jobs
from tests.web.conftest import Web
from tests.web.test_pages import text_of


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_examination_says_what_is_promised_and_what_to_do(kind, request, serve, tmp_path, clock):
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    else:
        url = request.getfixturevalue("postgres_store_url")
    broker = open_broker(url)
    broker.set_rule(Rule(RuleKind.PAUSE, "slow", None, "ada", "provider is down"))
    web = serve(broker, url=url)
    browser = web.browser(Role.VIEW)
    assert "Nobody has examined this store" in text_of(browser.get("/health").text)

    answer = browser.post("/health")

    assert (answer.status_code, answer.headers["location"]) == (303, "/health")
    said = text_of(browser.get("/health").text)
    assert "What is promised here" in said
    assert "an accepted job" in said.lower() or "accepted" in said
    assert "provider is down" in said
    assert "penstock resume slow" in said
    assert "penstock doctor" in said
    broker.close()


def test_of_a_store_without_a_url_what_is_known_from_inside_is_said(
    memory_web: Web, memory_broker, clock
):
    memory_broker.enqueue(some_jobs(clock, 2))
    browser = memory_web.browser(Role.VIEW)

    browser.post("/health")

    said = text_of(browser.get("/health").text)
    assert "none is alive; ready to run: 2" in said
    assert "1 red" in said or "2 red" in said


def test_looking_at_the_page_examines_nothing(memory_web: Web):
    client = memory_web.client(Role.VIEW)

    for _ in range(3):
        client.get("/health")

    assert memory_web.site.examining.last is None


def test_a_store_that_does_not_answer_holds_nobody_up_and_is_examined_once():
    examining, asked, answer = Examining(), threading.Event(), threading.Event()
    calls: list[int] = []

    def look() -> list[Finding]:
        calls.append(1)
        asked.set()
        answer.wait(30)
        return [Finding("store", Colour.GREEN, "here")]

    examining.examine(look, 1.0, seconds=0.01)
    assert asked.wait(30)
    examining.examine(look, 2.0, seconds=30)

    assert examining.under_way
    assert examining.last is None
    answer.set()
    assert examining._thread is not None
    examining._thread.join(30)
    assert examining.last is not None
    assert (examining.last.at, len(calls)) == (1.0, 1)


def test_hostile_findings_are_shown_and_never_run(memory_web: Web, memory_broker):
    hostile = "<script>alert(1)</script>"
    memory_broker.set_rule(Rule(RuleKind.PAUSE, "slow", None, hostile, hostile))
    browser = memory_web.browser(Role.VIEW)

    browser.post("/health")

    page = browser.get("/health").text
    assert "<script>alert" not in page
    assert "alert(1)" in text_of(page)
