"""Queues and rules on pages: where jobs stand, and holding them back with a count before it."""

from __future__ import annotations

import html
import re

import pytest

from penstock.job import failed
from penstock.operate.sentences import NEVER_SET
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, enqueue_and_claim, settle, some_jobs
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of


def shown_queues(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'data-queue="([^"]*)"', page)]


def test_queues_show_where_their_jobs_stand_the_fullest_first(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 3, queue="small") + some_jobs(clock, 1200, queue="large"))
    broker.put(Rule(RuleKind.PAUSE, "small", None, "ada", "provider is down"))
    broker.gauge()

    page = web.client(Role.VIEW).get("/queues")

    assert shown_queues(page.text) == ["large", "small"]
    said = text_of(page.text)
    assert "large 1,200 0 0 0 0 0 0" in said
    assert "small paused 0 0 0 3 0 0 0" in said
    assert "queue small ada provider is down" in said
    assert "penstock count" in said


def test_a_number_leads_to_the_jobs_that_it_counts(web: Web, broker, clock):
    clock.advance(seconds=1)
    settle(broker, enqueue_and_claim(broker, clock, queue="a b"), failed("no"))
    enqueue_and_claim(broker, clock, queue="a b")
    broker.enqueue(some_jobs(clock, 4, queue="a b"))
    broker.enqueue([a_job(clock, queue="a b", run_at=clock.now() + 60) for _ in range(3)])
    client = web.client(Role.VIEW)

    for path in ("/", "/queues/one?name=a+b"):
        figures = re.findall(
            r'<li class="(\w+)[^>]*><a href="(/jobs[^"]*)">\s*<strong[^>]*>(\d+)',
            client.get(path).text,
        )
        numbers = {place: int(number) for place, _, number in figures}
        expected = {"ready": 4, "scheduled": 3, "waiting": 0, "running": 1, "failed": 1}
        assert {place: numbers[place] for place in expected} == expected
        for place, link, number in figures:
            if place not in {"paused", "limited"}:
                assert client.get(html.unescape(link)).text.count("<tr data-row") == int(number)


def test_how_long_the_oldest_waits_is_shown_while_it_is_known(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 2, queue="slow"))
    clock.advance(seconds=125)
    broker.gauge()
    client = web.client(Role.VIEW)

    assert "2 min 5 s" in text_of(client.get("/queues").text)
    assert "2 min 5 s" in text_of(client.get("/queues/one", params={"name": "slow"}).text)
    clock.advance(seconds=600)
    assert "2 min 5 s" not in text_of(client.get("/queues").text)


def test_ten_thousand_queues_are_searched_sorted_and_paged_each_once(
    memory_web: Web, memory_broker, clock
):
    memory_broker.enqueue([a_job(clock, queue=f"q{number:05}") for number in range(10_000)])
    client = memory_web.client(Role.VIEW)

    first = client.get("/queues", params={"sort": "name"})
    found = client.get("/queues", params={"q": "q0123", "sort": "name"})
    last = client.get("/queues", params={"sort": "name", "page": 200})

    assert shown_queues(first.text) == [f"q{number:05}" for number in range(50)]
    assert "1 to 50 of 10,000 queues" in text_of(first.text)
    assert shown_queues(found.text) == [f"q{number:05}" for number in range(1230, 1240)]
    assert shown_queues(last.text)[-1] == "q09999"


def test_a_queue_shows_its_tasks_and_the_rules_over_them(web: Web, broker, clock):
    broker.enqueue([a_job(clock, queue="mail"), a_job(clock, task="mail:sweep", queue="mail")])
    broker.put(Rule(RuleKind.LIMIT, "mail", None, "otto", "gateway", running=5))
    broker.put(Rule(RuleKind.BLOCK, None, "mail:sweep", "ada", "until legal has read it"))
    broker.put(Rule(RuleKind.ORDER, "mail", None, "ada", "", policy="fair"))

    said = text_of(web.client(Role.VIEW).get("/queues/one", params={"name": "mail"}).text)

    assert "limit queue mail 5 running otto gateway" in said
    assert "block task mail:sweep ada until legal has read it" in said
    assert "order queue mail fair" in said
    assert "mail:send 1" in said


def test_a_rule_is_counted_before_it_is_set_and_looking_changes_nothing(web: Web, broker, clock):
    broker.enqueue(
        [*some_jobs(clock, 7, queue="mail"), a_job(clock, queue="mail", tags={"t": "a"})]
    )
    browser = web.browser(Role.OPERATE)
    given = {"kind": "pause", "queue": "mail", "reason": "provider is down", "for": "3600"}

    page = browser.get("/rules/new", params=given)
    tagged = browser.get("/rules/new", params={"kind": "pause", "tag": "t=a"})

    assert "8 jobs of queue mail are due now and would be held back" in text_of(page.text)
    assert "1 job of tag t=a is due now" in text_of(tagged.text)
    assert "penstock pause mail --for 3600s --reason 'provider is down'" in text_of(page.text)
    assert broker.records(Rule) == []
    assert browser.post("/rules/pause", data=given).status_code == 303
    [rule] = broker.records(Rule)
    assert (rule.kind, rule.target, rule.author) == ("pause", "queue mail", "otto")
    assert (rule.reason, rule.until) == ("provider is down", clock.now() + 3600)


@pytest.mark.parametrize(
    ("kind", "more", "off"),
    [
        ("pause", {}, "resume"),
        ("pause", {"task": "mail:send", "version": "2"}, "resume"),
        ("pause", {"tag": "tenant=a", "key": "k 7"}, "resume"),
        ("block", {}, "unblock"),
        ("limit", {"running": "5", "rate": "100/min"}, "limit-off"),
        ("limit", {"running": "5", "per_key": "yes"}, "limit-off"),
        ("order", {"policy": "wait"}, "order-off"),
    ],
)
def test_each_rule_is_set_and_taken_back_as_the_page_offers_it(web: Web, broker, kind, more, off):
    browser = web.browser(Role.ADMIN)

    answer = browser.post(f"/rules/{kind}", data={"queue": "mail", **more, "reason": "so"})
    assert answer.status_code == 303
    [rule] = broker.records(Rule)
    assert (rule.kind, rule.author, rule.reason) == (kind, "ada", "so")
    page = browser.get("/rules").text
    [form] = re.findall(rf'action="/rules/{off}".*?</form>', page, re.DOTALL)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    assert '<input name="reason"' in form
    fields["reason"] = "it is over"
    assert browser.post(f"/rules/{off}", data=fields).status_code == 303

    assert broker.records(Rule) == []
    [last, _] = browser.get("/api/v1/audit", params={"kind": "rule"}).json()["deeds"]
    assert (last["author"], last["reason"]) == ("ada", "it is over")
    again = browser.post(f"/rules/{off}", data=fields)
    assert again.status_code == 409
    assert NEVER_SET in text_of(again.text)


def test_what_a_role_may_not_do_is_refused_where_it_is_done(memory_web: Web, memory_broker):
    viewer, operator = memory_web.browser(Role.VIEW), memory_web.browser(Role.OPERATE)

    for path in ("pause", "resume", "limit", "limit-off", "order", "order-off", "block", "unblock"):
        assert viewer.post(f"/rules/{path}", data={"queue": "mail"}).status_code == 403
    for path in ("block", "unblock"):
        assert operator.post(f"/rules/{path}", data={"queue": "mail"}).status_code == 403
    assert memory_broker.records(Rule) == []
    assert 'action="/rules/block"' not in operator.get("/rules/new?kind=block&queue=mail").text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kind": "limit", "queue": "mail", "rate": "often"}, "write 10/s"),
        ({"kind": "limit", "queue": "mail", "running": "0"}, "it is 1 or more"),
        ({"kind": "pause", "queue": "mail", "version": "x"}, "a whole number"),
        ({"kind": "pause", "tag": "tenant"}, "is not NAME=VALUE"),
        (
            {"kind": "order", "queue": "mail", "policy": "often"},
            "there are wait, skip, batch, fair",
        ),
        ({"kind": "color", "queue": "mail"}, "the kinds of rules are pause, block, limit, order"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_a_sentence(memory_web: Web, given, sentence):
    page = memory_web.client(Role.OPERATE).get("/rules/new", params=given)

    assert page.status_code == 422
    said = text_of(page.text) or page.text
    assert sentence in html.unescape(said)


@pytest.mark.parametrize("kind", ["pause", "block", "limit", "order"])
def test_who_has_just_opened_the_form_made_no_mistake(memory_web: Web, kind):
    client = memory_web.client(Role.ADMIN)

    for given in ({"kind": kind}, {"kind": kind, "queue": "mail"}):
        page = client.get("/rules/new", params=given)
        assert page.status_code == 200
        assert 'role="alert"' not in page.text


def test_a_rule_about_everything_is_refused(memory_web: Web, memory_broker):
    answer = memory_web.browser(Role.ADMIN).post("/rules/pause", data={"reason": "all"})

    assert answer.status_code == 422
    assert memory_broker.records(Rule) == []


def test_with_nothing_there_the_page_says_how_it_would_come(memory_web: Web):
    page = memory_web.client(Role.VIEW).get("/queues")

    assert "penstock enqueue tasks:add 2 3" in text_of(page.text)
    assert "There are no rules" in text_of(page.text)
