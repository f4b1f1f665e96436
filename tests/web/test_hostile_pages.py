"""Names and texts that mean harm, on every page that shows them: nothing breaks, nothing runs."""

from __future__ import annotations

import html
import re
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from penstock.backfill import KEY, TAG
from penstock.ids import derived_id
from penstock.job import failed
from penstock.rule import Rule, RuleKind
from penstock.timetable import decide
from penstock.web.access import Role
from tests.factories import a_flow, a_job, a_schedule, part
from tests.web.conftest import Web
from tests.web.test_pages import text_of

HARM = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' or 1=1; --",
    "a/../../b?c=d&e=f#g",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "ünï ☃ " + "x" * 190,
    "-rf %00 %2e%2e \\",
]


def crawl(client, *starts: str) -> dict[str, str]:
    """Every page that links lead to from here, one of each kind and name."""
    seen: dict[str, str] = {}
    left = list(starts)
    while left:
        address = left.pop()
        if address in seen or len(seen) > 150:
            continue
        answer = client.get(address)
        if answer.status_code == 303:
            left.append(answer.headers["location"])
            continue
        assert answer.status_code == 200, f"{address}: {answer.status_code} {text_of(answer.text)}"
        seen[address] = answer.text
        links = re.findall(r'(?:href|hx-get)="(/[^"]*)"', answer.text)
        left += [
            html.unescape(link)
            for link in links
            if not link.startswith(("/static", "/operations", "/live", "/jobs?"))
        ]
    return seen


@pytest.mark.parametrize("harm", HARM)
def test_harm_in_every_name_is_shown_and_does_nothing(web: Web, broker, clock, harm):
    broker.enqueue([a_job(clock, harm, queue=harm, key=harm, tags={harm: harm})])
    filled = a_job(clock, harm, id=derived_id(KEY, harm, harm), key=KEY, tags={TAG: harm})
    broker.enqueue([filled])
    flow = a_flow(clock, one=part(task=harm, queue=harm), many=part("one", task=harm, jobs=3))
    named = msgspec.structs.replace(
        flow.flow, name=harm, find={"who": harm}, state=msgspec.json.encode({harm: harm})
    )
    flow._replace(flow=named).send(broker)
    kept = broker.put_schedule(a_schedule(harm, harm))
    clock.advance(seconds=3601)
    decide(broker, kept)
    for rule in (
        Rule(RuleKind.PAUSE, harm, harm, harm, harm, tag=(harm, harm), key=harm),
        Rule(RuleKind.LIMIT, harm, None, harm, harm, running=1),
        Rule(RuleKind.ORDER, harm, None, harm, harm, policy="fair"),
    ):
        broker.set_rule(rule)
    client = web.browser(Role.ADMIN)

    pages = crawl(client, "/", "/queues", "/rules", "/flows", "/schedules", "/backfills")

    kinds = {urlsplit(address).path for address in pages}
    assert {"/queues/one", "/schedules/one", "/backfills/one", "/rules/new"} <= kinds
    assert f"/flows/{flow.flow.id}" in kinds
    # Files for programs are no pages, and browsers are told so.
    for text in (pages[address] for address in pages if "/audit." not in address):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    everything = html.unescape(" ".join(pages.values()))
    assert harm in everything
    queries = [urlsplit(address).query for address in pages if "/one?" in address]
    assert {parse_qs(query).get("name", [harm])[0] for query in queries} == {harm, "default"}


@pytest.mark.parametrize("harm", [*HARM, "\x00", "a\x00b", "\ud800", "9" * 500, ""])
def test_harm_in_every_parameter_is_answered_with_a_page(
    memory_web: Web, memory_broker, clock, harm
):
    memory_broker.enqueue([a_job(clock)])
    client = memory_web.browser(Role.ADMIN)
    sent = harm.encode("utf-8", "surrogatepass")
    looks = {
        "/queues": ("q", "sort", "page"),
        "/queues/one": ("name",),
        "/rules": ("q", "page"),
        "/rules/new": ("kind", "queue", "task", "version", "tag", "key", "running", "rate", "for"),
        "/flows": ("q", "after"),
        "/schedules": ("q", "page"),
        "/schedules/one": ("name",),
        "/backfills/one": ("task", "first", "last"),
    }
    for path, names in looks.items():
        answer = client.get(path, params=dict.fromkeys(names, sent))
        assert answer.status_code in {200, 303, 400, 404, 422}, path
        assert "<script>alert" not in answer.text

    rules = ("pause", "block", "limit", "order", "resume", "limit-off")
    acts = [f"/rules/{each}" for each in rules]
    acts += [f"/schedules/{each}" for each in ("pause", "resume", "run", "remove")]
    acts += ["/backfills/retry", "/backfills/again"]
    fields = ("task", "version", "tag", "key", "running", "rate", "policy", "for", "name", "reason")
    for path in acts:
        for data in ({}, {"queue": "mail", "running": "1", "policy": "fair"}):
            given = {**dict.fromkeys((*fields, "queue", "first", "last"), sent), **data}
            answer = client.post(path, data=given)
            assert answer.status_code in {303, 400, 404, 409, 422}, path


def test_an_error_that_means_harm_is_shown_on_the_page_of_its_flow(web: Web, broker, clock):
    from tests.factories import claim, settle

    flow = a_flow(clock, only=part())
    flow.send(broker)
    [job] = claim(broker)
    settle(broker, job, failed("Boom\n<script>alert(1)</script>"))

    page = web.client(Role.VIEW).get(f"/flows/{flow.flow.id}").text

    assert "<script>alert(1)</script>" in text_of(page)
    assert "<script>alert" not in page
