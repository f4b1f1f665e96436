"""Login at an OpenID Connect provider, beside tokens: roles from claims, and lies refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.errors import Refused
from penstock.operate.roles import Role
from penstock.web.access import Tokens, new_token
from penstock.web.oidc import LOGIN_SECONDS, OidcLogin
from penstock.web.oidc_settings import OidcSettings, parse_oidc
from penstock.web.serve import DashboardTokens, check_bind
from tests.web.conftest import NO_TLS, TYPED, Web, served
from tests.web.openid import CLIENT, SECRET, Provider, provider


@pytest.fixture
def openid() -> Iterator[Provider]:
    with provider() as made:
        yield made


class Desk:
    """A dashboard with such a login, and a browser before it."""

    def __init__(self, web: Web, login: OidcLogin) -> None:
        self.web = web
        self.login = login
        self.browser = httpx.Client(
            base_url=web.address, headers={"origin": web.address}, timeout=30, verify=NO_TLS
        )

    def leave(self, to: str = "/jobs") -> httpx.Response:
        """To the provider, and with its answer to where it leads."""
        return self.come_back(self.begin(to))

    def begin(self, to: str = "/jobs") -> str:
        """The address to which the provider sends the browser."""
        left = self.browser.get("/oidc/begin", params={"to": to}, headers=TYPED)
        assert left.status_code == 303, left.text
        with httpx.Client(timeout=30, verify=NO_TLS) as elsewhere:
            return elsewhere.get(left.headers["location"]).headers["location"]

    def come_back(self, address: str) -> httpx.Response:
        return self.browser.get(address, headers={"sec-fetch-site": "cross-site"})


@pytest.fixture
def desk(openid: Provider, memory_broker, clock) -> Iterator[Desk]:
    settings = OidcSettings(
        openid.issuer,
        CLIENT,
        SECRET,
        "groups",
        "email",
        ("openid", "email"),
        "",
        {Role.VIEW: frozenset({"staff"}), Role.OPERATE: frozenset({"support", "night"})},
    )
    login = OidcLogin(settings)
    with served(memory_broker, access=Tokens([new_token("ada")[0]], oidc=login)) as web:
        desk = Desk(web, login)
        yield desk
        desk.browser.close()


def test_whoever_logs_in_there_is_in_here_with_the_role_of_the_claim(desk: Desk, openid: Provider):
    openid.claims["groups"] = ["staff", "support", "cyclists"]
    page = desk.browser.get("/jobs", headers=TYPED)
    entered = desk.leave("/jobs?q=state:failed")
    jobs = desk.browser.get("/jobs", headers=TYPED)
    audit = desk.browser.get("/audit", headers=TYPED)

    assert page.status_code == 401
    assert "Log in at 127.0.0.1" in page.text
    assert 'content="0; url=/jobs?q=state:failed"' in entered.text
    assert jobs.status_code == 200
    assert "otto@example.org" in jobs.text
    assert "operate" in audit.text
    assert desk.browser.post("/rules/block", data={"queue": "mail"}).status_code == 403
    question = openid.questions[0]
    assert question["code_challenge_method"] == "S256"
    assert question["redirect_uri"] == f"{desk.web.address}/oidc/back"


def test_without_a_value_that_gives_a_role_nobody_is_let_in(desk: Desk, openid: Provider):
    openid.claims["groups"] = ["cyclists"]
    answer = desk.leave()

    assert answer.status_code == 401
    assert "otto@example.org has no role here: the claim groups says cyclists" in answer.text
    assert desk.browser.get("/jobs", headers=TYPED).status_code == 401


LIES = {
    "another client": {"aud": "somebody"},
    "another issuer": {"iss": "https://elsewhere.example.org"},
    "too old": {"exp": int(time.time()) - 3600},
    "never ends": {"exp": None},
    "another login": {"nonce": "n"},
    "no nonce": {"nonce": None},
    "another party": {"aud": [CLIENT, "somebody"], "azp": "somebody"},
    "nobody": {"sub": None},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_an_id_token_that_is_not_for_this_login_is_refused(desk: Desk, openid: Provider, lie):
    openid.claims["groups"], openid.lie = ["support"], lie

    assert desk.leave().status_code == 401
    assert desk.browser.get("/jobs", headers=TYPED).status_code == 401


@pytest.mark.parametrize("how", ["another key", "no signature", "the public key as a secret"])
def test_an_id_token_that_the_provider_did_not_sign_is_refused(desk: Desk, openid: Provider, how):
    openid.claims["groups"] = ["support"]
    if how == "another key":
        openid.signs_with = ec.generate_private_key(ec.SECP256R1())
    elif how == "no signature":
        openid.signs_with, openid.algorithm = None, "none"
    else:
        openid.algorithm = "HS256"

    assert desk.leave().status_code == 401
    assert desk.browser.get("/jobs", headers=TYPED).status_code == 401


def test_an_answer_is_good_once_and_only_in_the_browser_that_left(desk: Desk, openid: Provider):
    openid.claims["groups"] = ["support"]
    address = desk.begin()
    with httpx.Client(base_url=desk.web.address, timeout=30, verify=NO_TLS) as somebody:
        stolen = somebody.get(address)
    kept = dict(desk.browser.cookies)
    entered = desk.come_back(address)
    desk.browser.cookies.update(kept)
    again = desk.come_back(address)

    assert (stolen.status_code, entered.status_code, again.status_code) == (401, 200, 401)


def test_a_cookie_that_was_changed_or_is_of_another_login_is_refused(desk: Desk, openid: Provider):
    openid.claims["groups"] = ["support"]
    first = desk.begin()
    [name] = desk.browser.cookies
    desk.begin()
    other = desk.come_back(first)
    desk.browser.cookies.set(name, f"x{desk.browser.cookies[name]}", domain="127.0.0.1")

    assert other.status_code == 401
    assert desk.come_back(first).status_code == 401


def test_a_login_that_takes_too_long_is_refused(memory_broker, openid: Provider):
    moments = [1000.0]
    settings = OidcSettings(openid.issuer, CLIENT, SECRET, "groups", "email", ("openid",), "", {})
    login = OidcLogin(settings, clock=lambda: moments[0])
    leaving = login.leave("http://127.0.0.1/oidc/back", "/")
    state = httpx.URL(leaving.address).params["state"]

    assert login.left_in(leaving.cookie, state).to == "/"
    moments[0] += LOGIN_SECONDS
    with pytest.raises(Exception, match="took too long"):
        login.left_in(leaving.cookie, state)


@pytest.mark.parametrize("to", ["https://evil.example.org/", "//evil.example.org", "/\\evil"])
def test_nobody_is_led_elsewhere(desk: Desk, openid: Provider, to):
    openid.claims["groups"] = ["support"]

    assert 'content="0; url=/"' in desk.leave(to).text


def test_an_address_that_was_not_verified_is_no_name(desk: Desk, openid: Provider):
    openid.claims |= {"groups": ["staff"], "email_verified": False}

    assert "Logged in as 0042" in desk.leave().text


def test_what_the_provider_refuses_is_said(desk: Desk, openid: Provider):
    openid.refusal = "access_denied"

    assert "127.0.0.1 says: access_denied" in desk.leave().text


def test_a_provider_that_is_away_keeps_tokens_working(memory_broker):
    settings = OidcSettings(
        "http://127.0.0.1:1", CLIENT, "", "groups", "email", ("openid",), "", {}
    )
    token, text = new_token("ada")
    with served(memory_broker, access=Tokens([token], oidc=OidcLogin(settings))) as web:
        away = web.client().get("/oidc/begin", headers=TYPED)
        bearer = {"authorization": f"Bearer {text}"}

        assert away.status_code == 503
        assert "does not answer" in away.text
        assert web.client().get("/jobs", headers=bearer).status_code == 200


def test_a_provider_of_another_name_or_without_tls_is_refused(desk: Desk, openid: Provider):
    openid.document = {"token_endpoint": "http://example.org/token"}
    plain = desk.browser.get("/oidc/begin", headers=TYPED)
    openid.document = {"issuer": "https://elsewhere.example.org"}
    other = desk.browser.get("/oidc/begin", headers=TYPED)

    assert (plain.status_code, other.status_code) == (503, 503)


TABLE = {
    "issuer": "https://login.example.org",
    "client_id": "penstock",
    "claim": "realm_access.roles",
    "roles": {"view": ["staff"], "admin": ["sre"]},
}


def test_the_settings_are_a_table_and_the_secret_is_in_a_file(tmp_path: Path):
    (tmp_path / "oidc").write_text("between us\n")
    (tmp_path / "oidc").chmod(0o600)
    file = tmp_path / "penstock.toml"
    settings = parse_oidc({**TABLE, "client_secret_file": "oidc"}, file)

    assert settings is not None
    assert settings.client_secret == "between us"
    assert settings.role_for(["sre", "staff"]) is Role.ADMIN
    assert settings.role_for(["nobody"]) is Role.ANYBODY
    assert parse_oidc(None, None) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"issuer": "http://login.example.org"}, "not an https"),
        ({"roles": {"root": ["x"]}}, "'root' is no role"),
        ({"roles": {}}, "no value of the claim gives a role"),
        ({"secret": "in clear"}, "unknown field `secret`"),
        ({"scopes": ["email"]}, 'lacks "openid"'),
        ({"client_secret_file": "nowhere"}, "cannot be read"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, change, says):
    with pytest.raises(Refused, match=says):
        parse_oidc({**TABLE, **change}, tmp_path / "penstock.toml")


def test_with_such_a_login_other_machines_may_connect_over_tls_only(tmp_path: Path):
    made = DashboardTokens([new_token("ada")[0]], None, tmp_path / "tokens")

    with pytest.raises(Refused, match="TLS"):
        check_bind("0.0.0.0", made, oidc=True)
    with pytest.raises(Refused, match="set tokens"):
        check_bind("0.0.0.0", made)
