"""Who is let in: nobody without a token, browsers with a cookie, programs with a header."""

from __future__ import annotations

import os
import secrets
from http.cookies import SimpleCookie

import pytest

from penstock.app.token_text import check_private, check_strength
from penstock.errors import Refused
from penstock.web.access import (
    MOST_SESSIONS,
    SESSION_SECONDS,
    TICKET_SECONDS,
    Person,
    Role,
    Tokens,
    new_token,
    parse_tokens,
    read_tokens,
)
from penstock.web.route import Route, check_routes
from penstock.web.routes import ROUTES
from penstock.web.serve import TOKENS, load_or_make_tokens
from tests.web.conftest import TYPED, Web

OPEN = {
    *(("POST", "/enter"), ("GET", "/static/style.css")),
    # 401 where people do not log in at a provider
    *(("GET", "/oidc/begin"), ("GET", "/oidc/back")),
}
A, B = "4c1e7a90b2d35f68e0c4a1b79d2f6e83", "b7d04f2a9c618e35d1f0a4c7b2968e5d"
A_JOB = "0190a6c4-5e1f-7000-8000-00000a1b2000"


def filled(path: str) -> str:
    """A path of the table with something in place of its parameters."""
    return path.replace("{id}", A_JOB).replace("{file:path}", "penstock.js")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_without_a_token_no_route_answers_but_the_entrance(memory_web: Web, route: Route):
    nobody = memory_web.client()

    for headers in ({"origin": memory_web.address}, {}, {"authorization": f"Bearer {'x' * 40}"}):
        answer = nobody.request(route.method, filled(route.path), headers=headers)

        if (route.method, route.path) == ("GET", "/static/style.css"):
            assert answer.status_code == 200
        else:
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path",
    [
        *("/nowhere", "/jobs/", "//jobs", "/enter/", "/health/", "/metrics/", "/JOBS", "/jobs%00"),
        *("/static/style.css/", "/static/%2e%2e/jobs", "/static/style.css%2f..%2fpenstock.js"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_without_a_token_what_is_not_there_answers_the_same(memory_web: Web, path, method):
    answer = memory_web.client().request(method, path, headers={"origin": memory_web.address})

    assert answer.status_code == 401


def test_what_is_open_to_anybody_is_this_and_nothing_else():
    assert {(route.method, route.path) for route in ROUTES if route.role is Role.ANYBODY} == OPEN


def test_a_route_without_a_role_keeps_the_dashboard_from_starting(memory_broker):
    from penstock.web.site import Dashboard

    forgotten = (*ROUTES, Route("GET", "/forgotten", "forgotten", lambda asked: {}))

    with pytest.raises(Refused, match="GET /forgotten declares no role"):
        Dashboard(memory_broker, access=lambda _: None, hosts=None, routes=forgotten)


def test_an_open_route_is_one_exact_path_and_no_route_stands_twice():
    with pytest.raises(Refused, match="may have no parameter"):
        check_routes([Route("GET", "/{any}", "any", print, Role.ANYBODY)])
    with pytest.raises(Refused, match="twice"):
        check_routes([*ROUTES, ROUTES[0]])
    with pytest.raises(Refused, match="everything else is POST"):
        check_routes([Route("DELETE", "/jobs", "gone", print, Role.ADMIN)])


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address(memory_web: Web):
    text = memory_web.texts[Role.VIEW]
    browser = memory_web.client()

    answer = browser.get("/jobs", params={"q": "state:failed", "token": text}, headers=TYPED)

    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs?q=state%3Afailed"
    [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie["httponly"]
    assert cookie["samesite"].lower() == "strict"
    assert text not in answer.headers["set-cookie"]
    assert browser.get(answer.headers["location"]).status_code == 200


@pytest.mark.parametrize("site", [None, "cross-site", "same-site"])
def test_a_link_on_another_page_logs_nobody_in_before_a_click(memory_web: Web, site):
    """Else a page could log people in as somebody else, and see what they do there."""
    text = memory_web.texts[Role.VIEW]
    browser = memory_web.client()
    said = {} if site is None else {"sec-fetch-site": site}

    asked = browser.get("/jobs", params={"q": "state:failed", "token": text}, headers=said)

    assert asked.status_code == 200
    assert "set-cookie" not in asked.headers
    assert "Log in as vera?" in asked.text
    form = {"token": text, "to": "/jobs?q=state%3Afailed"}
    for name, value in form.items():
        assert f'name="{name}" value="{value}"' in asked.text
    foreign = browser.post("/enter", data=form, headers={"origin": "https://evil.example"})
    assert (foreign.status_code, "set-cookie" in foreign.headers) == (403, False)
    entered = browser.post("/enter", data=form, headers={"origin": memory_web.address})
    assert (entered.status_code, entered.headers["location"]) == (303, form["to"])
    assert browser.get("/jobs").status_code == 200


def test_a_ticket_is_used_by_the_click_and_not_by_the_link(memory_web: Web):
    access = memory_web.site.access
    assert isinstance(access, Tokens)
    ticket = access.ticket(access._tokens[0])
    browser, head = memory_web.client(), {"origin": memory_web.address}

    assert "Log in as vera?" in browser.get("/", params={"token": ticket}).text
    assert browser.post("/enter", data={"token": ticket}, headers=head).status_code == 303
    assert browser.post("/enter", data={"token": ticket}, headers=head).status_code == 401


def test_random_tokens_are_strong_enough():
    for _ in range(200):
        check_strength(new_token("ada")[1], "ours")
        for count in (16, 24, 32):
            check_strength(secrets.token_hex(count), "as openssl makes it")


def test_a_ticket_lets_in_once_soon_and_only_by_the_address():
    now = [0.0]
    token, text = new_token("ada", Role.ADMIN)
    tokens = Tokens([token], clock=lambda: now[0])
    first, late = tokens.ticket(token), tokens.ticket(token)

    assert tokens.person_with(first) is None
    assert tokens.person_with_ticket_or_token(first) == Person("ada", Role.ADMIN)
    assert tokens.person_with_ticket_or_token(first) is None
    now[0] = TICKET_SECONDS
    assert tokens.person_with_ticket_or_token(late) is None
    assert tokens.person_with_ticket_or_token(text) == Person("ada", Role.ADMIN)


def test_the_form_takes_a_token_and_leads_back_to_where_one_wanted_to_go(memory_web: Web):
    browser = memory_web.client()
    asked = browser.get("/jobs?q=state:failed")
    assert 'name="to" value="/jobs?q=state:failed"' in asked.text

    answer = browser.post(
        "/enter",
        data={"token": memory_web.texts[Role.VIEW], "to": "/jobs?q=state:failed"},
        headers={"origin": memory_web.address},
    )

    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?q=state:failed")
    assert browser.get("/jobs").status_code == 200


@pytest.mark.parametrize(
    "to",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:1", "", "/\n/"],
)
def test_the_form_leads_nowhere_else(memory_web: Web, to):
    answer = memory_web.client().post(
        "/enter",
        data={"token": memory_web.texts[Role.VIEW], "to": to},
        headers={"origin": memory_web.address},
    )

    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize("text", ["", "x", "ä" * 50, "\x00", "' or 1=1 --", "a" * 5000])
def test_a_wrong_token_is_told_so_and_not_repeated(memory_web: Web, text):
    nobody = memory_web.client()

    by_address = nobody.get("/", params={"token": text})
    by_form = nobody.post("/enter", data={"token": text}, headers={"origin": memory_web.address})

    assert (by_address.status_code, by_form.status_code) == (401, 401)
    assert "set-cookie" not in [*by_address.headers, *by_form.headers]
    assert len(text) < 5 or text not in by_address.text + by_form.text


def test_whoever_leaves_has_to_come_in_again(memory_web: Web):
    browser = memory_web.browser(Role.VIEW)
    assert browser.get("/").status_code == 200

    browser.post("/leave")

    assert browser.get("/").status_code == 401


class WithCookie:
    """A request with this session's cookie."""

    def __init__(self, session: str) -> None:
        self.headers = {"host": "localhost:8484"}
        self.cookies = {"penstock-8484": session}


def test_a_session_ends_after_a_while():
    now = [0.0]
    tokens = Tokens([], clock=lambda: now[0])
    session = tokens.start_session(Person("ada", Role.ADMIN))
    assert tokens(WithCookie(session)) == Person("ada", Role.ADMIN)  # pyright: ignore[reportArgumentType]

    now[0] = SESSION_SECONDS

    assert tokens(WithCookie(session)) is None  # pyright: ignore[reportArgumentType]


def test_whoever_logs_in_again_and_again_ends_only_sessions_of_their_own():
    tokens = Tokens([])
    ada = tokens.start_session(Person("ada", Role.ADMIN))
    first = tokens.start_session(Person("eve", Role.VIEW))

    for _ in range(2000):
        last = tokens.start_session(Person("eve", Role.VIEW))

    assert tokens(WithCookie(ada)) == Person("ada", Role.ADMIN)  # pyright: ignore[reportArgumentType]
    assert tokens(WithCookie(first)) is None  # pyright: ignore[reportArgumentType]
    assert tokens(WithCookie(last)) == Person("eve", Role.VIEW)  # pyright: ignore[reportArgumentType]
    assert len(tokens._sessions) == MOST_SESSIONS + 1


def test_read_only_makes_everybody_a_viewer(serve, memory_broker):
    web = serve(memory_broker, read_only=True)

    answer = web.client(Role.ADMIN).post(f"/jobs/{A_JOB}/cancel")

    assert answer.status_code == 403
    assert "ada has view" in answer.json()["error"]


def test_an_application_may_say_itself_who_asks(serve, memory_broker):
    people = {"ada": Person("ada", Role.OPERATE), "eve": None, "zoe": Person("zoe", Role.ANYBODY)}
    web = serve(memory_broker, access=lambda request: people.get(request.cookies.get("session")))
    client = web.client()

    statuses = {
        name: client.get("/", headers={"cookie": f"session={name}"}).status_code for name in people
    }

    assert statuses == {"ada": 200, "eve": 401, "zoe": 401}
    assert client.get("/", params={"token": web.texts[Role.ADMIN]}).status_code == 401


def test_an_application_may_look_up_who_asks_while_others_are_served(serve, memory_broker):
    async def access(request):
        return Person("ada", Role.VIEW)

    assert serve(memory_broker, access=access).client().get("/").status_code == 200


def test_tokens_are_read_from_lines_and_between_commas_with_hashes_too():
    token, text = new_token("carl", Role.VIEW)
    said = f"# people\nada:admin:{A}, Bob B:operate:{B}\n{token.line}\n"

    tokens = Tokens(parse_tokens(said, "a file"))

    assert tokens.person_with(A) == Person("ada", Role.ADMIN)
    assert tokens.person_with(B) == Person("Bob B", Role.OPERATE)
    assert tokens.person_with(text) == Person("carl", Role.VIEW)
    assert tokens.person_with(token.hashed.hex()) is None


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("", "has no token"),
        ("ada", "written name:role:token"),
        (f"ada:owner:{A}", "has the role 'owner'"),
        (f"ada:anybody:{A}", "has the role 'anybody'"),
        ("ada:admin:secret-word", "the token of ada is weak"),
        (f"ada:admin:{'secret-word' * 9}", "is weak"),
        (f"ada:admin:{'s' * 100}", "is weak"),
        (f"ada:admin:{'12' * 40}", "is weak"),
        (f"ada:admin:{A[:31]}", "is weak"),
        ("ada:admin:sha256=abc", "64 hexadecimal digits"),
    ],
)
def test_tokens_that_cannot_be_read_are_refused_without_showing_them(said, sentence):
    with pytest.raises(Refused, match=sentence) as refused:
        parse_tokens(said, "a file")

    assert "secret-word" not in str(refused.value)
    assert A not in str(refused.value)


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ada:admin:{A}\n")
    file.chmod(0o644)

    with pytest.raises(Refused, match="chmod 600"):
        read_tokens(file)
    file.chmod(0o600)
    assert [token.name for token in read_tokens(file)] == ["ada"]


def test_a_file_of_tokens_that_somebody_else_laid_there_is_refused(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"eve:admin:{B}\n")
    file.chmod(0o600)
    mine = file.stat()

    check_private(file, mine, user=mine.st_uid)
    with pytest.raises(Refused, match=f"belongs to the user {mine.st_uid + 1}"):
        check_private(file, foreign(mine, mine.st_uid + 1), user=mine.st_uid)
    check_private(file, foreign(mine, 0), user=mine.st_uid + 1)


def foreign(status: os.stat_result, user: int) -> os.stat_result:
    """The same file, of another user."""
    return os.stat_result((*status[:4], user, *status[5:]))


def test_a_new_token_is_written_past_whatever_lies_in_its_way(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(TOKENS, raising=False)
    first = load_or_make_tokens("sqlite:///a.db", "ada", file=None, anew=False)
    assert first.kept is not None
    victim = tmp_path / "victim"
    victim.write_text("precious")
    first.kept.unlink()
    first.kept.symlink_to(victim)
    first.kept.with_suffix(f".{os.getpid()}").symlink_to(victim)

    second = load_or_make_tokens("sqlite:///a.db", "ada", file=None, anew=True)

    assert victim.read_text() == "precious"
    assert second.kept == first.kept
    assert not second.kept.is_symlink()
    assert second.kept.stat().st_mode & 0o777 == 0o600
    assert read_tokens(second.kept) == second.tokens
