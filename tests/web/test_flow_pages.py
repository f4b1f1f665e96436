"""Flows on pages: listed, drawn, their jobs, and looked after as a whole."""

from __future__ import annotations

import html
import re

import msgspec

from penstock.job import failed, succeeded
from penstock.testing.conformance.factories import Parts, a_flow, begun, claim, part, settle
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of


def named(parts: Parts, name: str = "catalogue", **find) -> Parts:
    flow = msgspec.structs.replace(parts.flow, name=name, find=find, state=b'{"rows":7}')
    return parts._replace(flow=flow)


def a_catalogue(clock, **find) -> Parts:
    """One job, then a map of three, then one that needs all of them."""
    parts = a_flow(
        clock,
        fetch=part(task="mail:send"),
        score=part("fetch", task="media:resize", jobs=3),
        report=part("score", task="mail:sweep"),
    )
    return named(parts, **find)


def run(broker, clock, outcome, seconds: float = 1.0) -> str:
    """Claim one job, and end it after so long."""
    [job] = claim(broker)
    clock.advance(seconds=seconds)
    settle(broker, job, begun(outcome, clock.now() - seconds))
    return job.id


def test_flows_are_listed_with_how_far_they_are(web: Web, broker, clock):
    parts = a_catalogue(clock, supplier="acme")
    parts.send(broker)
    run(broker, clock, succeeded())

    page = web.client(Role.VIEW).get("/flows")

    said = text_of(page.text)
    assert "catalogue supplier=acme running 20 % 5 0" in said
    assert f'href="/flows/{parts.flow.id}"' in page.text
    assert "penstock flow ID" in said


def test_flows_are_found_by_name_and_property_and_by_id(web: Web, broker, clock):
    wanted, other = a_catalogue(clock, supplier="a b"), a_catalogue(clock, supplier="globex")
    for parts in (wanted, other):
        parts.send(broker)
    client = web.client(Role.VIEW)

    page = client.get("/flows", params={"q": "catalogue supplier='a b'"})

    assert wanted.flow.id in page.text
    assert other.flow.id not in page.text
    assert "penstock flow --name catalogue --find 'supplier=a b'" in text_of(page.text)
    assert client.get("/flows", params={"q": "user=62"}).status_code == 422
    to = client.get("/flows", params={"q": wanted.flow.id})
    assert (to.status_code, to.headers["location"]) == (303, f"/flows/{wanted.flow.id}")


def test_flows_are_shown_page_by_page_each_once(memory_web: Web, memory_broker, clock):
    sent = [a_flow(clock, only=part()) for _ in range(60)]
    for parts in sent:
        parts.send(memory_broker)
    client = memory_web.client(Role.VIEW)

    seen: list[str] = []
    address: str | None = "/flows"
    while address:
        page = client.get(address, headers={"hx-request": "true"})
        seen += re.findall(r'class="id" href="/flows/([^"]+)"', page.text)
        more = re.search(r'hx-get="([^"]+)"', page.text)
        address = None if more is None else html.unescape(more[1])

    assert seen == sorted((parts.flow.id for parts in sent), reverse=True)


def test_a_flow_is_drawn_with_its_states_and_the_slowest_step_marked(web: Web, broker, clock):
    parts = a_catalogue(clock)
    parts.send(broker)
    run(broker, clock, succeeded(), seconds=5)
    for _ in range(2):
        run(broker, clock, succeeded(), seconds=1)
    run(broker, clock, failed("ValueError: no <route>"), seconds=1)

    page = web.client(Role.VIEW).get(f"/flows/{parts.flow.id}")

    said = text_of(page.text)
    assert "5 of 5 jobs ended, 2 of them without success" in said
    assert "media:resize: failed, 3 of 3 ended, 1 without success" in said
    assert "mail:sweep: cancelled" in said
    assert "ValueError: no <route>" in said
    assert "<route>" not in page.text
    [slow] = re.findall(r'<a class="node (\w+) slow"[^>]*>\s*<title>([^:]+:\w+)', page.text)
    assert slow == ("succeeded", "mail:send")
    assert '"rows": 7' in said


def test_a_flow_is_found_by_any_of_its_jobs_and_one_that_is_not_there_is_not(
    web: Web, broker, clock
):
    parts = a_catalogue(clock)
    parts.send(broker)
    client = web.client(Role.VIEW)

    assert parts.flow.id in client.get(f"/flows/{parts.ids('fetch')[0]}").text
    for id in ("0190a6c4-5e1f-7000-8000-00000a1b2000", "nonsense", "%00"):
        assert client.get(f"/flows/{id}").status_code == 404
        assert client.get(f"/flows/{id}/column").status_code == 404
    assert client.get(f"/flows/{parts.flow.id}/nodes/{id}").status_code == 404


def test_the_jobs_of_a_node_are_a_click_away_and_of_no_other(web: Web, broker, clock):
    parts, other = a_catalogue(clock), a_catalogue(clock)
    for each in (parts, other):
        each.send(broker)
    client = web.client(Role.VIEW)

    page = client.get(f"/flows/{parts.flow.id}/nodes/{parts.nodes['score']}")
    single = client.get(f"/flows/{parts.flow.id}/nodes/{parts.nodes['fetch']}")
    none = client.get(f"/flows/{parts.flow.id}/nodes/{parts.nodes['score']}?state=failed")

    shown = re.findall(r'class="id" href="/jobs/([^"]+)"', page.text)
    assert sorted(shown) == sorted(parts.ids("score"))
    assert single.headers["location"] == f"/jobs/{parts.ids('fetch')[0]}"
    assert "No job that is kept is failed" in text_of(none.text)


def test_a_flow_of_many_nodes_is_drawn_in_part_and_the_rest_on_demand(
    memory_web: Web, memory_broker, clock
):
    many = {f"n{number}": part() for number in range(150)}
    chain = {"c0": part("n0")} | {f"c{n}": part(f"c{n - 1}") for n in range(1, 10)}
    parts = a_flow(clock, **many, **chain)
    parts.send(memory_broker)
    client = memory_web.client(Role.VIEW)

    page = client.get(f"/flows/{parts.flow.id}")
    column = client.get(f"/flows/{parts.flow.id}/column", params={"level": 0, "page": 2})
    more = re.search(r'hx-get="([^"]+)"', page.text)
    assert more is not None
    piece = client.get(html.unescape(more[1]), headers={"hx-request": "true"})

    assert page.text.count('class="node ') == 12 + 7
    assert "and 138 more" in text_of(page.text)
    assert column.text.count("<tr data-row>") == 50
    assert "<html" not in piece.text
    assert piece.text.count('class="node ') == 3


def test_a_whole_flow_is_cancelled_retried_and_deleted_with_a_reason(web: Web, broker, clock):
    parts = a_catalogue(clock)
    parts.send(broker)
    browser = web.browser(Role.OPERATE)
    address = f"/flows/{parts.flow.id}"

    for verb in ("cancel", "retry", "delete"):
        answer = browser.post(f"{address}/{verb}", data={"reason": f"{verb} it"})
        assert answer.status_code == 303

    told = [
        msgspec.json.decode(row.data)
        for row in broker.history(job=parts.flow.id)
        if row.kind == "flow"
    ]
    done = [each for each in told if each["says"] in {"cancel", "retry", "delete"}]
    assert [(each["says"], each["author"], each["reason"]) for each in done] == [
        (verb, "otto", f"{verb} it") for verb in ("cancel", "retry", "delete")
    ]
    assert browser.get(address).status_code == 404


def test_a_viewer_sees_no_buttons_of_a_flow_and_they_would_not_work(
    memory_web: Web, memory_broker, clock
):
    parts = a_catalogue(clock)
    parts.send(memory_broker)
    browser = memory_web.browser(Role.VIEW)
    address = f"/flows/{parts.flow.id}"

    assert f"{address}/cancel" not in browser.get(address).text
    for verb in ("cancel", "retry", "delete"):
        assert browser.post(f"{address}/{verb}").status_code == 403
    assert memory_broker.flow(parts.flow.id).ended_at is None


def test_with_no_flow_the_page_says_how_to_make_one(memory_web: Web):
    page = memory_web.client(Role.VIEW).get("/flows")

    assert "There are no flows" in text_of(page.text)
