"""Names and values that mean harm, on every page and in REST: nothing runs, nothing breaks.

What is stored is whatever anybody ever enqueued; what is asked for is whatever anybody sends.
"""

from __future__ import annotations

import html
import re
import sys
from html.parser import HTMLParser
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
import pytest

from penstock import App
from penstock.enqueue.ids import derived_id
from penstock.job import failed
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.timetable import decide
from penstock.task.backfill import KEY, TAG
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    a_worker,
    begun,
    claim_for,
    part,
    settle,
)
from penstock.web.access import Person, Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of

V1 = "/api/v1"
MARK = "zqx"  # in every hostile text, so that it can be found again
HOSTILE = [
    f"<script>{MARK}</script>",
    f'"><img src={MARK} onerror=alert(1)>',
    f"' or 1=1; -- {MARK}\"`,style='x'",
    f"{MARK}/../..//etc?c=d&e=f#g",
    f"{{{{ {MARK} }}}}{{% raw %}}${{7*7}}",
    f"javascript:{MARK}",
    f"\u202e{MARK}\u2066\u200f",
    f"{MARK}" + "n" * 197,
    f"-rf {MARK} ä € 😀 &amp; %00 %2f \\",
]
NO_TEXT = ["\x00", "a\x00b", "\ud800", "\r\nset-cookie: x=y", "9" * 500, ""]


class Strict(HTMLParser):
    """What of a page a browser would run, load, or be sent to."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.wrong.append(f"<{tag} {name}>")
            if name in {"src", "href", "action", "hx-get"} and not (value or "").startswith(
                ("/", "#", "data:,")
            ):
                self.wrong.append(f"<{tag} {name}={value}>")
        if tag == "script" and "src" not in dict(attrs):
            self.wrong.append("<script>")
        if tag in {"img", "iframe", "object", "embed", "base", "style"}:
            self.wrong.append(f"<{tag}>")


def wrong_in(page: str) -> list[str]:
    parser = Strict()
    parser.feed(page)
    return parser.wrong


@pytest.mark.parametrize(
    "page",
    [
        "<p><script>x</script>",
        "<p onclick=x>",
        '<p style="x">',
        "<img src=/x>",
        '<a href="javascript:x">',
        '<a href="https://evil.example">',
    ],
)
def test_what_a_browser_would_run_is_seen_by_these_tests(page):
    assert wrong_in(page)


def crawl(client, *starts: str) -> dict[str, str]:
    """Every page that links lead to from here, one of each kind."""
    seen: dict[str, str] = {}
    kinds: set[object] = set()
    left = list(starts)
    while left:
        address = left.pop()
        there = urlsplit(address)
        kind = (there.path, frozenset(parse_qs(there.query)), MARK in address)
        if kind in kinds:
            continue
        kinds.add(kind)
        answer = client.get(address)
        if answer.status_code == 303:
            left.append(answer.headers["location"])
            continue
        if "text/html" not in answer.headers["content-type"]:
            continue  # a file for programs
        assert answer.status_code == 200, f"{address}: {answer.status_code} {text_of(answer.text)}"
        seen[address] = answer.text
        links = re.findall(r'(?:href|hx-get)="(/[^"]*)"', answer.text)
        left += [
            html.unescape(link)
            for link in links
            if not link.startswith(("/static", "/live", "/jobs?"))
        ]
    return seen


def filled(broker, clock, text: str) -> tuple[str, str]:
    """A store in which everything is called like this; a job that failed, and a flow."""
    body = msgspec.json.encode({"args": {text: [text, 2**63 + 1]}, "headers": {text: text}})
    job = a_job(clock, text, queue=text, key=text, tags={text: text}, body=body)
    day = a_job(clock, text, id=derived_id(KEY, text, text, bucket=KEY), key=KEY, tags={TAG: text})
    broker.enqueue([job])
    flow = a_flow(clock, one=part(task=text, queue=text), many=part("one", task=text, jobs=3))
    named = msgspec.structs.replace(
        flow.flow, name=text, find={"who": text}, state=msgspec.json.encode({text: text})
    )
    flow._replace(flow=named).send(broker)
    for claimed in claim_for(broker, a_worker(f"w{text}", tasks={text: 1}, host=text), limit=5):
        settle(broker, claimed, begun(failed(f"Traceback\n{text}"), clock.now()))
    broker.enqueue([day])
    kept = broker.put(a_schedule(text, text))
    clock.advance(seconds=3601)
    decide(broker, kept)
    for rule in (
        Rule(RuleKind.PAUSE, text, text, text, text, tag=(text, text), key=text),
        Rule(RuleKind.LIMIT, text, None, text, text, running=1),
        Rule(RuleKind.ORDER, text, None, text, text, policy="fair"),
    ):
        broker.put(rule)
    return job.id, flow.flow.id


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_things_are_called_pages_show_it_as_text(web: Web, broker, clock, text):
    job, flow = filled(broker, clock, text)
    client = web.browser(Role.ADMIN)

    pages = crawl(client, "/", "/jobs?arguments=shown", "/jobs", f"/jobs/{job}", "/rules")

    kinds = {urlsplit(address).path for address in pages}
    wanted = {"/queues/one", "/schedules/one", "/backfills/one", "/rules/new", "/workers", "/audit"}
    assert {*wanted, f"/jobs/{job}", f"/flows/{flow}"} <= kinds
    for address, page in pages.items():
        assert wrong_in(page) == [], address
    for path in (f"/jobs/{job}", f"/flows/{flow}", "/queues", "/schedules"):
        assert text in html.unescape(pages[path]), path
    assert str(2**63 + 1) in pages[f"/jobs/{job}"]
    # Links to what has such a name find it again.
    queries = [urlsplit(address).query for address in pages if "/one?" in address]
    assert {parse_qs(query).get("name", [text])[0] for query in queries} == {text, "default"}
    [queue] = {
        address for address in pages if address.startswith("/queues/one?") and MARK in address
    }
    links = set(re.findall(r'href="(/jobs\?q=queue[^"]*)"', pages[queue]))
    assert any(job in client.get(html.unescape(link)).text for link in links)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_things_are_called_rest_says_it_to_the_letter(web: Web, broker, clock, text):
    job, _ = filled(broker, clock, text)
    client = web.client(Role.ADMIN)

    for path in ("/jobs", "/count", "/queues", "/workers", "/rules", "/schedules", "/history"):
        answer = client.get(f"{V1}{path}")
        assert answer.status_code == 200
        assert MARK in answer.text
    assert client.get(f"{V1}/jobs/{job}").json()["args"] == {text: [text, 2**63 + 1]}


LOOKS = {
    "/jobs": ("q", "after", "limit", "arguments"),
    "/operations/new": ("verb", "q"),
    "/queues": ("q", "sort", "page"),
    "/queues/one": ("name",),
    "/rules": ("q", "page"),
    "/rules/new": ("kind", "queue", "task", "version", "tag", "key", "running", "rate", "for"),
    "/flows": ("q", "after"),
    "/schedules": ("q", "page"),
    "/schedules/one": ("name",),
    "/backfills/one": ("task", "first", "last"),
    "/audit": ("author", "kind", "since", "until", "before"),
    "/audit.csv": ("author", "since", "limit"),
    f"{V1}/jobs": ("q", "after", "limit"),
    f"{V1}/flows": ("name", "find", "after"),
    f"{V1}/schedules": ("name", "next"),
    f"{V1}/operations/preview": ("verb", "q"),
    f"{V1}/history": ("after", "limit"),
}
PLACES = ("/", "/jobs/", "/operations/", "/static/", "/flows/", f"{V1}/jobs/", f"{V1}/flows/")


@pytest.mark.parametrize("text", [*HOSTILE, *NO_TEXT], ids=range(len(HOSTILE + NO_TEXT)))
def test_whatever_is_asked_for_is_answered_and_not_reflected(memory_web: Web, text):
    client = memory_web.browser(Role.ADMIN)
    sent = text.encode("utf-8", "surrogatepass")
    asked = [f"{place}{quote(sent)}" for place in PLACES]
    for path, names in LOOKS.items():
        asked.append(f"{path}?{'&'.join(f'{name}={quote(sent)}' for name in names)}")
        asked += [f"{path}?{name}={quote(sent)}" for name in names]
        asked += [f"{path}?q={field}:{quote(sent)}" for field in ("queue", "arg.n") if "q" in names]

    for path in asked:
        answer = client.get(path)
        assert answer.status_code in {200, 303, 400, 404, 414, 422}, path
        assert "set-cookie" not in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert wrong_in(answer.text) == [], path


SENT = (
    ("/cancel", {"ids": ["{}"], "reason": "{}"}),
    ("/cancel", {"flow": "{}"}),
    ("/pause", {"queue": "{}", "task": "{}", "key": "{}", "reason": "{}"}),
    ("/pause", {"tag": {"{}": "{}"}}),
    ("/limit", {"queue": "{}", "running": 1, "rate": "{}"}),
    ("/limit", {"queue": "{}", "running": 1}),
    ("/signal", {"name": "{}", "value": "{}"}),
    ("/schedules/run", {"name": "{}"}),
    ("/schedules/remove", {"name": "{}"}),
    ("/operations", {"verb": "{}", "filter": "{}"}),
    ("/operations", {"verb": "cancel", "filter": "{}"}),
    ("/jobs", {"task": "{}", "args": {"{}": "{}"}}),
)


@pytest.mark.parametrize("text", [*HOSTILE, *NO_TEXT], ids=range(len(HOSTILE + NO_TEXT)))
def test_whatever_is_sent_is_refused_or_kept_as_text(web: Web, broker, clock, text):
    job = a_job(clock)
    broker.enqueue([job])
    browser, client = web.browser(Role.ADMIN), web.client(Role.ADMIN)
    sent = text.encode("utf-8", "surrogatepass")
    acts = [
        f"/rules/{each}" for each in ("pause", "block", "limit", "order", "resume", "limit-off")
    ]
    acts += [f"/schedules/{each}" for each in ("pause", "resume", "run", "remove")]
    acts += ["/backfills/retry", "/backfills/again", "/operations"]
    fields = ("task", "version", "tag", "key", "running", "rate", "policy", "for", "name", "reason")

    # httpx would send the Python text of bytes.
    cancelled = browser.post(f"/jobs/{job.id}/cancel", content=urlencode({"reason": sent}))
    assert cancelled.status_code == 303
    for path in acts:
        for data in ({}, {"queue": "mail", "running": "1", "policy": "fair"}):
            given = {
                **dict.fromkeys((*fields, "queue", "first", "last", "verb", "q"), sent),
                **data,
            }
            answer = browser.post(path, content=urlencode(given))
            assert answer.status_code in {303, 400, 404, 409, 422}, path
    quoted = msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1].decode()
    for path, body in SENT:
        content = msgspec.json.encode(body).decode().replace("{}", quoted)
        assert client.post(f"{V1}{path}", content=content).status_code < 500, path
    for path in (f"/jobs/{job.id}", "/", "/rules", "/queues"):
        assert wrong_in(client.get(path).text) == []


def test_nothing_is_imported_because_a_request_names_it(serve, clock):
    app = App("memory:")
    app.task(name="shop:add")(lambda **given: None)
    client = serve(app).client(Role.ADMIN)
    class_path = {"py/object": "antigravity.fly", "__class__": "this.s", "$type": "turtledemo.main"}

    def ask(task: str, name: str) -> None:
        for path, body in (
            ("/jobs", {"task": task, "args": class_path}),
            ("/signal", {"name": name, "value": class_path}),
            ("/pause", {"task": task, "queue": name}),
            ("/operations", {"verb": "cancel", "filter": f"task:{task}"}),
        ):
            assert client.post(f"{V1}{path}", json=body).status_code < 500
        client.post("/backfills/again", data={"task": task, "first": "1", "last": name})

    ask("shop:none", "x")  # what is imported at its first use is there now
    before = set(sys.modules)
    for task in ("antigravity:fly", "this", "turtledemo.main:x", "os:system", "../antigravity.py"):
        ask(task, task)

    assert set(sys.modules) == before


def test_a_person_may_be_called_anything(serve, memory_broker, clock):
    job = a_job(clock)
    memory_broker.enqueue([job])
    web = serve(memory_broker, access=lambda _: Person(HOSTILE[0] + "\x00", Role.ADMIN))
    client = web.client()
    client.headers["origin"] = web.address

    assert client.post(f"/jobs/{job.id}/cancel").status_code == 303
    page = client.get(f"/jobs/{job.id}").text
    assert wrong_in(page) == []
    assert MARK in page
