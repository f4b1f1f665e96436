"""Health: what is promised, at once; the doctor's findings when they are there, once a minute."""

from __future__ import annotations

import threading

import pytest

from penstock.app.app import App
from penstock.brokers import open_broker
from penstock.operate.doctor import Colour, Finding
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import some_jobs
from penstock.web.access import Role
from penstock.web.doctor_runs import DoctorRuns
from tests.web.conftest import Web
from tests.web.test_pages import text_of


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_examination_says_what_is_promised_and_what_to_do(kind, request, serve, tmp_path, clock):
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    else:
        url = request.getfixturevalue("postgres_store_url")
    broker = open_broker(url)
    broker.put(Rule(RuleKind.PAUSE, "slow", None, "ada", "provider is down"))
    web = serve(broker, url=url)
    browser = web.browser(Role.VIEW)

    page = browser.get("/health")

    said = text_of(page.text)
    assert "What this store promises Here an accepted job survives kill -9" in said
    assert "penstock doctor" in said
    assert 'hx-get="/health/findings" hx-trigger="load"' in page.text
    found = text_of(browser.get("/health/findings").text)
    assert "provider is down" in found
    assert "penstock resume slow" in found
    broker.close()


def test_of_a_store_without_a_url_what_is_known_from_inside_is_said(
    memory_web: Web, memory_broker, clock
):
    memory_broker.enqueue(some_jobs(clock, 2))
    browser = memory_web.browser(Role.VIEW)

    assert "penstock doctor --url URL" in text_of(browser.get("/health").text)

    said = text_of(browser.get("/health/findings").text)
    assert "no worker is alive; ready to run: 2" in said
    assert "1 red" in said or "2 red" in said


def test_a_relaxed_queue_is_named_where_less_is_promised(serve, memory_broker):
    app = App(broker=memory_broker)
    app.queue("clicks", relaxed=True)

    said = text_of(serve(app).client(Role.VIEW).get("/health").text)

    assert "Relaxed queue clicks" in said


def test_the_doctor_looks_once_a_minute_however_many_people_do(
    memory_web: Web, memory_broker, clock
):
    browser, examining = memory_web.browser(Role.VIEW), memory_web.site.doctor_runs

    browser.get("/health")
    assert examining.last is None
    for _ in range(3):
        browser.get("/health/findings")
    first = examining.last
    clock.advance(seconds=61)
    memory_broker.enqueue(some_jobs(clock, 2))
    again = text_of(browser.get("/health/findings").text)

    assert first is not None
    assert examining.last is not first
    assert "ready to run: 2" in again


def test_whoever_says_so_has_it_examined_at_once(memory_web: Web, memory_broker, clock):
    browser = memory_web.browser(Role.VIEW)
    browser.get("/health/findings")
    memory_broker.enqueue(some_jobs(clock, 2))
    assert "ready to run: 2" not in text_of(browser.get("/health/findings").text)

    answer = browser.post("/health")

    assert (answer.status_code, answer.headers["location"]) == (303, "/health")
    assert "ready to run: 2" in text_of(browser.get("/health/findings").text)


def test_a_store_that_does_not_answer_holds_nobody_up_and_is_examined_once():
    examining, asked, answer = DoctorRuns(), threading.Event(), threading.Event()
    calls: list[int] = []

    def look() -> list[Finding]:
        calls.append(1)
        asked.set()
        answer.wait(30)
        return [Finding("store", Colour.GREEN, "here")]

    examining.run(look, 1.0, seconds=0.01)
    assert asked.wait(30)
    examining.run(look, 2.0, seconds=30)

    assert examining.under_way
    assert examining.last is None
    answer.set()
    assert examining._thread is not None
    examining._thread.join(30)
    assert examining.last is not None
    assert (examining.last.at, len(calls)) == (1.0, 1)


def test_hostile_findings_are_shown_and_never_run(memory_web: Web, memory_broker):
    hostile = "<script>alert(1)</script>"
    memory_broker.put(Rule(RuleKind.PAUSE, "slow", None, hostile, hostile))
    browser = memory_web.browser(Role.VIEW)

    page = browser.get("/health/findings").text

    assert "<script>alert" not in page
    assert "alert(1)" in text_of(page)
