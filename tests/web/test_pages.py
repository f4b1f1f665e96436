"""The pages show what is so, and act."""

from __future__ import annotations

import html
import re

import pytest

from penstock.app.app import App
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, begun, claim, settle, some_jobs
from penstock.web.access import Role
from tests.web.conftest import Web


def text_of(page: str) -> str:
    """What a page says to people, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_overview_counts_jobs_and_shows_what_holds_them_back(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 1200) + some_jobs(clock, 3, queue="slow"))
    broker.put(Rule(RuleKind.PAUSE, "slow", None, "ada", "provider is down"))

    page = web.client(Role.VIEW).get("/")

    assert page.status_code == 200
    assert "1,200 ready" in text_of(page.text)
    assert "3 paused" in text_of(page.text)
    assert "pause queue slow by ada" in text_of(page.text)
    assert "penstock count" in page.text


def test_jobs_are_found_by_the_filter_of_the_command_line(web: Web, broker, clock):
    wanted = a_job(clock, queue="slow", tags={"tenant": "a b"})
    broker.enqueue([wanted, a_job(clock), a_job(clock, queue="slow", task="mail:sweep")])

    page = web.client(Role.VIEW).get(
        "/jobs", params={"q": "queue:slow -task:mail:sweep tag.tenant:'a b'"}
    )

    assert re.findall(r'class="id" href="/jobs/([^"]+)"', page.text) == [wanted.id]
    assert "penstock find queue:slow -task:mail:sweep 'tag.tenant:a b'" in text_of(page.text)


def test_a_search_says_how_far_it_looked_only_where_it_was_given_up(
    serve, sqlite_broker, clock, monkeypatch
):
    first = a_job(clock, key="ada")
    sqlite_broker.enqueue([first])
    clock.advance(seconds=1)
    sqlite_broker.enqueue(some_jobs(clock, 1000))
    client = serve(sqlite_broker).client(Role.VIEW)

    def found(q: str) -> str:
        return text_of(client.get("/jobs", params={"q": q}).text)

    assert "were searched" not in found("") + found("key:ada") + found("key:nobody")
    monkeypatch.setattr("penstock.brokers.tables.reading.MOST_EXAMINED", 600)
    assert "were searched" not in found("")
    given_up = client.get("/jobs", params={"q": "key:ada"}).text
    assert "600 jobs were searched, and none of them matches. Search further" in text_of(given_up)
    [further] = re.findall(r'href="(/jobs[^"]*after=[^"]*)"', given_up)
    assert first.id in client.get(html.unescape(further)).text


def test_a_filter_with_a_mistake_says_what_would_be_right(memory_web: Web):
    page = memory_web.client(Role.VIEW).get("/jobs", params={"q": "color:red"})

    assert page.status_code == 422
    assert "no such field; there are task, queue" in text_of(page.text)


def test_an_id_in_the_filter_leads_to_its_job(memory_web: Web, memory_broker, clock):
    job = a_job(clock)
    memory_broker.enqueue([job])

    answer = memory_web.client(Role.VIEW).get("/jobs", params={"q": job.id.upper()})

    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.id}")


def test_jobs_are_shown_page_by_page_each_once(web: Web, broker, clock):
    jobs = some_jobs(clock, 120)
    broker.enqueue(jobs)
    client = web.client(Role.VIEW)

    seen: list[str] = []
    address: str | None = "/jobs"
    while address:
        page = client.get(address)
        seen += re.findall(r'class="id" href="/jobs/([^"]+)"', page.text)
        more = re.search(r'<tr class="more"><td colspan="6"><a href="([^"]+)"', page.text)
        address = None if more is None else html.unescape(more[1])

    assert seen == sorted((job.id for job in jobs), reverse=True)


def test_more_rows_come_as_rows_alone(memory_web: Web, memory_broker, clock):
    memory_broker.enqueue(some_jobs(clock, 60))
    client = memory_web.client(Role.VIEW)
    more = re.search(r'hx-get="([^"]+)"', client.get("/jobs").text)
    assert more is not None

    rows = client.get(html.unescape(more[1]), headers={"hx-request": "true"}).text

    assert "<html" not in rows
    assert rows.count("<tr data-row>") == 10


def test_arguments_are_hidden_in_lists_until_asked_for(memory_web: Web, memory_broker, clock):
    memory_broker.enqueue([a_job(clock, body=b'{"args":{"to":"ada@example.org"}}')])
    client = memory_web.client(Role.VIEW)

    assert "ada@example.org" not in client.get("/jobs").text
    assert "ada@example.org" in client.get("/jobs", params={"arguments": "shown"}).text


def test_a_job_shows_why_it_is_there_its_attempts_and_what_it_carries(web: Web, broker, clock):
    job = a_job(clock, body=b'{"args":{"n":12345678901234567890,"x":0.1}}', key="k7")
    broker.enqueue([job])
    [claimed] = claim(broker)
    clock.advance(seconds=2)
    settle(broker, claimed, begun(failed("Traceback\nValueError: no <route>"), clock.now() - 1))

    page = web.client(Role.VIEW).get(f"/jobs/{job.id}")

    said = text_of(page.text)
    assert "It failed at" in said
    assert "ValueError: no <route>" in said
    assert "12345678901234567890" in said
    assert "k7" in said
    assert "1.0 s" in said
    assert f"penstock why {job.id}" in said
    assert "<route>" not in page.text


def test_a_job_that_is_not_kept_is_shown_as_the_history_has_it(web: Web, broker, clock):
    job = a_job(clock, body=b'{"args":{"n":7}}')
    broker.enqueue([job])
    [claimed] = claim(broker)
    settle(broker, claimed, begun(succeeded(b"49"), clock.now()))
    broker.act("delete", [job.id], "ada", "not needed")

    said = text_of(web.client(Role.VIEW).get(f"/jobs/{job.id}").text)

    assert "no longer kept" in said
    assert "deleted by ada : not needed" in said


def test_a_job_that_was_never_here_is_not_found(memory_web: Web):
    client = memory_web.client(Role.VIEW)

    for id in ("0190a6c4-5e1f-7000-8000-00000a1b2000", "nonsense", "%00", "'"):
        assert client.get(f"/jobs/{id}").status_code == 404


def test_a_job_is_cancelled_retried_and_deleted_with_a_reason(web: Web, broker, clock):
    job = a_job(clock)
    broker.enqueue([job])
    browser = web.browser(Role.OPERATE)

    for verb in ("cancel", "retry", "delete"):
        answer = browser.post(f"/jobs/{job.id}/{verb}", data={"reason": f"{verb} it"})
        assert answer.status_code == 303

    kept = [event for event in broker.history(job=job.id) if event.kind != "attempt"]
    assert [event.kind for event in kept] == ["cancel", "retry", "delete"]
    for event in kept:
        assert b"otto" in event.data
        assert f"{event.kind} it".encode() in event.data


def test_what_cannot_be_done_to_a_job_is_said(memory_web: Web, memory_broker, clock):
    job = a_job(clock)
    memory_broker.enqueue([job])
    browser = memory_web.browser(Role.OPERATE)

    answer = browser.post(f"/jobs/{job.id}/retry")

    assert answer.status_code == 409
    assert f"{job.id} was not changed." in text_of(answer.text)
    long = browser.post(f"/jobs/{job.id}/cancel", data={"reason": "x" * 501})
    assert long.status_code == 422
    assert "at most 500 are kept" in text_of(long.text)


def test_a_viewer_sees_no_buttons_and_they_would_not_work(memory_web: Web, memory_broker, clock):
    job = a_job(clock)
    memory_broker.enqueue([job])
    browser = memory_web.browser(Role.VIEW)

    assert "/cancel" not in browser.get(f"/jobs/{job.id}").text
    assert browser.post(f"/jobs/{job.id}/cancel").status_code == 403
    assert memory_broker.get(job.id).state == "ready"


def test_secrets_are_hidden_on_every_page_and_not_found_by(web: Web, broker, clock):
    body = b'{"args":{"card":"4111-1111","n":1},"secret":["card"]}'
    job, other = (a_job(clock, body=body) for _ in range(2))
    broker.enqueue([job, other])
    client = web.client(Role.ADMIN)

    for path in (f"/jobs/{job.id}", "/jobs?arguments=shown"):
        page = client.get(path)
        assert "4111-1111" not in page.text
        assert "***" in page.text
    # Nor does an answer tell a right guess from a wrong one.
    for q in ("arg.card:{}", "-arg.card:{}"):
        right, wrong = (
            client.get("/api/v1/jobs", params={"q": q.format(card), "limit": 1}).text
            for card in ("4111-1111", "4111-2222")
        )
        assert right == wrong
    assert job.id not in client.get("/jobs", params={"q": "arg.card:4111-1111"}).text


def test_with_arguments_hidden_nobody_sees_or_searches_them(serve, memory_broker, clock):
    job = a_job(clock, body=b'{"args":{"to":"ada@example.org"}}')
    memory_broker.enqueue([job])
    client = serve(memory_broker, hide_arguments=True).client(Role.ADMIN)

    for path in (f"/jobs/{job.id}", "/jobs?arguments=shown"):
        assert "ada@example.org" not in client.get(path).text
    assert client.get("/jobs", params={"q": "arg.to:ada@example.org"}).status_code == 422


@pytest.mark.parametrize("mounted", [True, False])
def test_below_a_prefix_every_link_stays_below_it(serve, memory_broker, clock, mounted):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from penstock.web import dashboard
    from penstock.web.access import Person

    memory_broker.enqueue(some_jobs(clock, 60))
    if mounted:
        inner = dashboard(memory_broker, access=lambda _: Person("ada", Role.ADMIN))
        outer = Starlette(routes=[Mount("/in/jobs", app=inner)])
    else:
        outer = dashboard(
            memory_broker, access=lambda _: Person("ada", Role.ADMIN), prefix="/in/jobs"
        )

    from tests.web.conftest import serving

    with serving(outer) as address:
        import httpx

        with httpx.Client(base_url=address) as client:
            for path in ("/in/jobs/", "/in/jobs/jobs"):
                page = client.get(path)
                assert page.status_code == 200
                links = re.findall(r'(?:href|action|src|hx-get)="(/[^"]*)"', page.text)
                assert links
                assert all(link.startswith("/in/jobs/") for link in links)
                for link in links:
                    assert client.get(html.unescape(link)).status_code in {200, 405}


def test_words_of_a_filter_are_suggested_while_it_is_typed(web: Web, broker, clock):
    broker.enqueue([a_job(clock, "mail:send"), a_job(clock, "shop:e mail", queue="slow")])
    client = web.client(Role.VIEW)

    def suggested(word: str) -> list[str]:
        answer = client.get("/jobs/suggestions", params={"word": word})
        assert answer.status_code == 200
        return answer.json()

    assert suggested("s") == ["state:", "since:"]
    assert suggested("-s") == ["-state:"]
    assert suggested("state:f") == ["state:failed"]
    assert suggested("d") == ["due:"]
    assert suggested("-due:") == ["-due:now", "-due:later"]
    assert suggested("-task:MAIL") == ["-task:mail:send", "-task:'shop:e mail'"]
    assert suggested("queue:") == ["queue:default", "queue:slow"]
    assert suggested("since:1") == ["since:15m", "since:1h", "since:1d"]
    assert suggested("arg.user:6") == suggested("nonsense") == []


def test_tasks_of_the_app_are_suggested_before_they_have_a_job(serve, memory_broker):
    app = App(broker=memory_broker)

    @app.task(name="mail:never_sent")
    def never_sent() -> None: ...

    answer = serve(app).client(Role.VIEW).get("/jobs/suggestions", params={"word": "task:never"})

    assert answer.json() == ["task:mail:never_sent"]


def test_an_empty_store_says_what_to_type_next(memory_web: Web):
    client = memory_web.client(Role.VIEW)

    for path in ("/", "/jobs"):
        assert "penstock run tasks:add 2 3" in text_of(client.get(path).text)
    nothing = text_of(client.get("/jobs", params={"q": "state:failed"}).text)
    assert "No job matches" in nothing
    assert "arg.NAME" in nothing
