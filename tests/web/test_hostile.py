"""Names and values that want to be something else: nothing breaks, and nothing is unescaped."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest

from penstock.job import failed
from penstock.rule import Rule, RuleKind
from penstock.web.access import Person, Role
from tests.factories import a_job, a_schedule, a_worker, begun, settle
from tests.web.conftest import Web

V1 = "/api/v1"
MARK = "zqx"  # in every hostile text, so that it can be found again
HOSTILE = [
    f"<script>{MARK}</script>",
    f'"><img src={MARK} onerror=alert(1)>',
    f"'{MARK}\"`",
    f"{MARK}/../..//etc",
    f"{{{{ {MARK} }}}}{{% x %}}",
    f"javascript:{MARK}",
    f"\u202e{MARK}\u2066\u200f",
    f"{MARK}" + "n" * 197,
    f"{MARK} ä € 😀 &amp; %00 %2f ?q=#",
    f"{MARK}',style='x'",
]


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


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_things_are_called_pages_show_it_as_text(web: Web, broker, clock, text):
    body = msgspec.json.encode({"args": {text: [text, 2**63 + 1]}, "headers": {text: text}})
    job = a_job(clock, task=text, queue=text, key=text, tags={text[:200]: text}, body=body)
    broker.enqueue([job])
    [claimed] = broker.claim(a_worker(f"w{text}", tasks={text: 1}, host=text))
    settle(broker, claimed, begun(failed(f"Traceback\n{text}"), clock.now()))
    broker.set_rule(Rule(RuleKind.PAUSE, text, None, text, text))
    broker.put_schedule(a_schedule(text, task=text))
    client = web.client(Role.ADMIN)

    paths = [
        "/",
        "/jobs?arguments=shown",
        "/jobs",
        f"/jobs/{job.id}",
        "/operations",
    ]
    for path in paths:
        page = client.get(path)
        assert page.status_code == 200
        assert wrong_in(page.text) == []
    assert text in html.unescape(client.get(f"/jobs/{job.id}").text)
    assert str(2**63 + 1) in client.get(f"/jobs/{job.id}").text
    # Links to what has such a name find it again.
    listed = client.get("/").text
    [queue] = set(re.findall(r'<td><a href="(/queues/one\?[^"]*)"', listed))
    shown = client.get(html.unescape(queue))
    assert shown.status_code == 200
    links = set(re.findall(r'href="(/jobs\?q=queue[^"]*)"', shown.text))
    assert links
    assert any(job.id in client.get(html.unescape(link)).text for link in links)
    for path in ("/jobs", "/count", "/queues", "/workers", "/rules", "/schedules", "/history"):
        answer = client.get(f"{V1}{path}")
        assert answer.status_code == 200
        assert MARK in answer.text
    assert client.get(f"{V1}/jobs/{job.id}").json()["args"] == {text: [text, 2**63 + 1]}


@pytest.mark.parametrize("text", [*HOSTILE, "\x00", "a\x00b", "\ud800", "\r\nset-cookie: x=y"])
def test_whatever_is_asked_for_is_answered_and_not_reflected(memory_web: Web, text):
    client = memory_web.client(Role.ADMIN)
    spelt = text.encode("utf-8", "surrogatepass")
    from urllib.parse import quote

    word = quote(spelt)
    paths = [
        f"/jobs?q={word}",
        f"/jobs?q=queue:{word}&after={word}&limit={word}",
        f"/jobs?after={word}",
        f"/jobs/{word}",
        f"/operations/new?verb={word}&q=state:failed",
        f"/operations/new?verb=retry&q={word}",
        f"/operations/{word}",
        f"/static/{word}",
        f"/{word}",
        f"{V1}/jobs?q={word}",
        f"{V1}/jobs/{word}",
        f"{V1}/jobs/{word}/history?after={word}",
        f"{V1}/flows?name={word}&find={word}={word}",
        f"{V1}/flows/{word}",
        f"{V1}/schedules?name={word}&next={word}",
        f"{V1}/operations/preview?verb={word}&q={word}",
        f"{V1}/operations/{word}",
        f"{V1}/history?after={word}&limit={word}",
    ]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code < 500, path
        assert "set-cookie" not in answer.headers
        if answer.headers["content-type"].startswith("text/html"):
            assert wrong_in(answer.text) == [], path
        else:
            assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("text", [*HOSTILE, "\x00", "a\x00b"])
def test_whatever_is_sent_in_a_form_or_as_json_is_refused_or_kept_as_text(
    web: Web, broker, clock, text
):
    job = a_job(clock)
    broker.enqueue([job])
    browser, client = web.browser(Role.ADMIN), web.client(Role.ADMIN)

    assert browser.post(f"/jobs/{job.id}/cancel", data={"reason": text}).status_code == 303
    assert wrong_in(browser.get(f"/jobs/{job.id}").text) == []
    for path, body in (
        ("/cancel", {"ids": [text], "reason": text}),
        ("/cancel", {"flow": text}),
        ("/pause", {"queue": text, "task": text, "key": text, "reason": text}),
        ("/pause", {"tag": {text: text}}),
        ("/limit", {"queue": text, "running": 1, "rate": text}),
        ("/limit", {"queue": text, "running": 1}),
        ("/signal", {"name": text, "value": text}),
        ("/schedules/run", {"name": text}),
        ("/schedules/remove", {"name": text}),
        ("/operations", {"verb": text, "filter": text}),
        ("/jobs", {"task": text, "args": {text: text}}),
    ):
        answer = client.post(f"{V1}{path}", json=body)
        assert answer.status_code < 500, path
    assert wrong_in(client.get("/").text) == []


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
