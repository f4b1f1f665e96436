"""The door: hosts, origins, sizes, and the headers of every answer."""

from __future__ import annotations

import re

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.testing.conformance.factories import a_job
from penstock.web.access import Role
from penstock.web.guard import HEADERS, MOST_BODY, MOST_TARGET, local_path
from tests.web.conftest import TYPED, Web


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8484",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@localhost",
        "localhost@evil.example",
        "0.0.0.0",
        "[::2]:80",
        "127.1",
        "2130706433",
        "localhost.",
        "localhost:8484:1",
        "localhost:8484@evil.example",
        "localhost:8484/?",
        "localhost:evil.example",
        "localhost, evil.example",
        "[::1",
        "[::1]evil.example",
        "",
    ],
)
def test_a_host_that_is_not_ours_is_refused_with_a_token_too(memory_web: Web, host):
    answer = memory_web.client(Role.ADMIN).get("/", headers={"host": host})

    assert answer.status_code in {400, 421}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:99999", "[::1]:8484"])
def test_our_own_names_are_answered_on_any_port(memory_web: Web, host):
    assert memory_web.client(Role.VIEW).get("/", headers={"host": host}).status_code == 200


def test_a_name_that_was_given_is_answered(serve, memory_broker):
    web = serve(memory_broker, hosts=["jobs.example.org"])
    client = web.client(Role.VIEW)

    assert client.get("/", headers={"host": "Jobs.Example.org:443"}).status_code == 200
    assert client.get("/").status_code == 421


PRINTED = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


@given(
    host=st.tuples(st.sampled_from(["", "localhost", "[::1]", "127.0.0.1:"]), PRINTED)
    .map("".join)
    .map(str.strip)
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_host_is_named_only_ours_are_answered(memory_web: Web, host):
    answer = memory_web.client(Role.VIEW).get("/", headers={"host": host})

    ours = re.fullmatch(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{0,5})?", host, re.IGNORECASE)
    assert answer.status_code == 200 if ours else answer.status_code in {400, 421}


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost.evil.example"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "none"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_form_of_another_site_changes_nothing(memory_web: Web, memory_broker, clock, headers):
    job = a_job(clock)
    memory_broker.enqueue([job])
    browser = memory_web.browser(Role.ADMIN)
    del browser.headers["origin"]

    answer = browser.post(f"/jobs/{job.id}/cancel", data={"reason": "ha"}, headers=headers)

    assert answer.status_code == 403
    assert memory_broker.get(job.id).state == "ready"


def test_a_form_that_does_not_say_where_it_is_from_changes_nothing(
    memory_web: Web, memory_broker, clock
):
    job = a_job(clock)
    memory_broker.enqueue([job])
    browser = memory_web.browser(Role.ADMIN)
    del browser.headers["origin"]

    answer = browser.post(f"/jobs/{job.id}/cancel", data={"reason": "ha"})

    assert answer.status_code == 401
    assert memory_broker.get(job.id).state == "ready"


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_site_that_has_a_token_is_refused_too(memory_web: Web, headers):
    answer = memory_web.client(Role.ADMIN).post("/leave", headers=headers)

    assert answer.status_code == 403


def test_a_page_that_came_in_the_clear_is_another_site_to_one_that_did_not(memory_web: Web):
    browser = memory_web.client()
    head = {"x-forwarded-proto": "https"}
    entered = browser.get(
        "/", params={"token": memory_web.texts[Role.VIEW]}, headers={**head, **TYPED}
    )
    head["cookie"] = entered.headers["set-cookie"].partition(";")[0]
    secure = memory_web.address.replace("http:", "https:")

    clear = browser.post("/leave", headers={**head, "origin": memory_web.address})
    ours = browser.post("/leave", headers={**head, "origin": secure})

    assert "secure" in entered.headers["set-cookie"].lower()
    assert (clear.status_code, ours.status_code) == (403, 303)


def test_our_own_forms_and_programs_with_a_token_come_through(
    memory_web: Web, memory_broker, clock
):
    jobs = [a_job(clock) for _ in range(3)]
    memory_broker.enqueue(jobs)
    browser, program = memory_web.browser(Role.OPERATE), memory_web.client(Role.OPERATE)
    first, second, third = (f"/jobs/{job.id}/cancel" for job in jobs)

    assert browser.post(first).status_code == 303
    assert browser.post(second, headers={"sec-fetch-site": "same-origin"}).status_code == 303
    assert program.post(third).status_code == 303
    assert {memory_broker.get(job.id).state for job in jobs} == {"cancelled"}


def test_looking_never_changes_anything(memory_web: Web, memory_broker, clock):
    job = a_job(clock)
    memory_broker.enqueue([job])

    answer = memory_web.browser(Role.ADMIN).get(f"/jobs/{job.id}/cancel")

    assert answer.status_code == 405
    assert memory_broker.get(job.id).state == "ready"


def test_a_verb_that_changes_something_refuses_a_request_that_looks(memory_broker, clock):
    from penstock.web.access import Person
    from penstock.web.checked_store import CheckedStore, NeedsPost

    looking = CheckedStore(memory_broker, Person("ada", Role.ADMIN), may_change=False)

    with pytest.raises(NeedsPost):
        looking.act("cancel", ["0190a6c4-5e1f-7000-8000-00000a1b2000"])


@pytest.mark.parametrize("path", ["/", "/jobs", "/nowhere", "/static/penstock.js", "/static/x"])
@pytest.mark.parametrize("role", [None, Role.VIEW])
def test_every_answer_tells_the_browser_to_run_nothing_of_others(memory_web: Web, path, role):
    answer = memory_web.client(role).get(path)

    for name in HEADERS:
        assert name in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


def test_a_body_that_is_too_large_is_refused_announced_or_not(memory_web: Web):
    client = memory_web.client(Role.ADMIN)

    def chunks():
        for _ in range(MOST_BODY // 65536 + 2):
            yield b"x" * 65536

    assert client.post("/leave", content=b"x" * (MOST_BODY + 1)).status_code == 413
    assert client.post("/leave", content=chunks()).status_code == 413


def test_an_address_that_is_too_long_is_refused(memory_web: Web):
    answer = memory_web.client(Role.VIEW).get("/jobs", params={"q": "x" * (MOST_TARGET + 1)})

    assert answer.status_code == 414


def test_a_socket_is_not_upgraded(memory_web: Web):
    head = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x"}

    try:
        answer = memory_web.client().get("/", headers=head)
    except httpx.RemoteProtocolError:
        return
    assert answer.status_code in {400, 401}


@given(target=st.text(max_size=40))
def test_one_is_only_ever_led_to_a_page_here(target):
    led = local_path(target, "/jobs")

    assert led.startswith("/jobs/")
    assert not led.startswith("//")
    assert "\\" not in led
    assert "\n" not in led


def test_another_method_is_refused_as_all_else_is(memory_web: Web):
    answer = memory_web.client(Role.ADMIN).put("/api/v1/count", content=b"{}")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.json() == {"error": "/api/v1/count takes GET, HEAD, not PUT."}
