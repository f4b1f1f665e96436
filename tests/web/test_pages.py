"""The pages show what is so, and act."""

from __future__ import annotations

import html
import re

import msgspec
import pytest

from penstock.app.app import App
from penstock.flows.spawn_links import with_spawner
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    begun,
    claim,
    part,
    settle,
    some_jobs,
)
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
    assert f"penstock show {job.id}" in said
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


def test_the_page_of_a_failed_job_shows_ones_own_calls_before_the_whole_traceback(
    web: Web, broker, clock
):
    job = a_job(clock)
    broker.enqueue([job])
    frames = (
        '  File "/srv/shop/orders.py", line 12, in charge\n    pay(order)\n'
        '  File "/usr/lib/python3.12/json/decoder.py", line 9, in decode\n    raise\n'
    )
    error = f"ValueError: no\n\nTraceback (most recent call last):\n{frames}ValueError: no"
    settle(broker, *claim(broker), failed(error))

    page = text_of(web.client(Role.VIEW).get(f"/jobs/{job.id}").text)

    assert "/srv/shop/orders.py:12 in charge pay(order) The whole traceback" in page
    assert page.count("decoder.py") == 1


def test_a_job_and_the_flow_that_it_spawned_link_both_ways(web: Web, broker, clock):
    spawner = a_job(clock)
    broker.enqueue([spawner])
    parts = a_flow(clock, first=part(), last=part("first"))
    flow, jobs = parts.flow, parts.jobs
    stored = with_spawner(jobs, spawner.id)
    outcome = msgspec.structs.replace(succeeded(), spawned=stored, flow=flow)
    settle(broker, *claim(broker), outcome)
    client = web.client(Role.VIEW)

    page = client.get(f"/jobs/{spawner.id}").text
    assert f'href="/flows/{flow.id}"' in page
    assert all(f'href="/jobs/{job.id}"' in page for job in jobs)
    assert (
        f'Spawned by <a class="id" href="/jobs/{spawner.id}"'
        in client.get(f"/flows/{flow.id}").text
    )
    shown = client.get(f"/api/v1/jobs/{flow.id}/show").json()
    assert (shown["parent"], shown["flow"]["id"]) == (spawner.id, flow.id)
    assert client.get(f"/api/v1/jobs/{'0' * 32}/show").status_code == 404


def test_why_a_queue_stands_still_is_the_same_over_rest_as_on_the_command_line(
    web: Web, broker, clock
):
    broker.enqueue(some_jobs(clock, 3, queue="slow"))

    answer = web.client(Role.VIEW).get("/api/v1/why", params={"of": "queue:slow"})
    unknown = web.client(Role.VIEW).get("/api/v1/why", params={"of": "queue:solw"})

    assert answer.json()["of"] == "queue:slow"
    assert answer.json()["findings"][1]["remedy"] == "penstock worker MODULE:APP"
    assert (unknown.status_code, "similar: slow" in unknown.text) == (404, True)


def chosen(client, verb: str, jobs, **fields):
    """The form of the list, sent for these jobs."""
    data = {"id": [job.id for job in jobs], **fields}
    return client.post(f"/jobs/chosen/{verb}", data=data, follow_redirects=True)


def test_chosen_rows_are_acted_on_and_the_others_left(web: Web, broker, clock):
    first, second, third = some_jobs(clock, 3)
    broker.enqueue([first, second, third])

    page = chosen(
        web.browser(Role.OPERATE), "cancel", [first, third], reason="left us", q="state:ready"
    )

    assert [broker.get(job.id).state for job in (first, second, third)] == [
        "cancelled",
        "ready",
        "cancelled",
    ]
    assert "2 jobs cancelled or asked to stop." in text_of(page.text)
    assert 'value="state:ready"' in page.text
    [row] = [row for row in broker.history("0", 100, first.id) if row.kind == "cancel"]
    assert b'"reason":"left us"' in row.data
    again = chosen(web.browser(Role.OPERATE), "cancel", [first])
    assert "0 jobs cancelled or asked to stop; 1 job left as they were." in text_of(again.text)


def test_rows_can_be_chosen_by_those_who_may_act(web: Web, broker, clock):
    [job] = some_jobs(clock, 1)
    broker.enqueue([job])

    assert f'name="id" value="{job.id}"' in web.client(Role.OPERATE).get("/jobs").text
    assert 'name="id"' not in web.client(Role.VIEW).get("/jobs").text
    assert chosen(web.browser(Role.VIEW), "cancel", [job]).status_code == 403
    assert chosen(web.browser(Role.OPERATE), "cancel", []).status_code == 422
    assert broker.get(job.id).state == "ready"


def test_arguments_are_in_the_list_for_those_who_act_and_others_ask(serve, sqlite_broker, clock):
    sqlite_broker.enqueue([a_job(clock, body=b'{"args":{"order":4711}}')])
    web = serve(sqlite_broker)

    def shows(role: Role, **query: str) -> bool:
        return "order=4711" in web.client(role).get("/jobs", params=query).text

    assert shows(Role.OPERATE)
    assert not shows(Role.OPERATE, arguments="hidden")
    assert not shows(Role.VIEW)
    assert shows(Role.VIEW, arguments="shown")
    hidden = serve(sqlite_broker, hide_arguments=True)
    assert "4711" not in hidden.client(Role.ADMIN).get("/jobs").text


def test_a_job_that_a_rule_holds_back_says_so_in_its_row(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 2, queue="slow") + some_jobs(clock, 2, queue="mail"))
    broker.put(Rule(RuleKind.PAUSE, "slow", None, "ada", "provider is down"))
    broker.put(Rule(RuleKind.LIMIT, "mail", running=1))
    claim(broker, queues=("mail",))
    client = web.client(Role.VIEW)

    def marks(q: str) -> list[str]:
        return re.findall(r'class="mark (\w+)"', client.get("/jobs", params={"q": q}).text)

    assert marks("queue:slow") == ["pause", "pause"]
    assert marks("queue:mail state:ready") == ["limit"]
    assert marks("state:running") == []
