"""Log in with a token or at an OpenID Connect provider, and log out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.web.access import Tokens, cookie_name
from penstock.web.guard import WRONG_TOKEN, Refusal, local_path, set_session
from penstock.web.request import WebRequest

if TYPE_CHECKING:
    from penstock.web.oidc import OidcLogin

T = TypeVar("T")
NO_PROVIDER = Refusal(401, "This dashboard has no login at a provider: use a token.")
MOST_LOGINS = 8  # at a time that wait for the provider


async def enter(request: WebRequest) -> Response:
    form, access = request.form(), request.site.access
    given = form.get("token", "")
    person = access.person_with_ticket_or_token(given) if isinstance(access, Tokens) else None
    if person is None or not isinstance(access, Tokens):
        await request.site.wrong_tokens.count(request.http)
        return request.site.refuse(request.http, Refusal(401, WRONG_TOKEN))
    answer = RedirectResponse(local_path(form.get("to", ""), request.root), status_code=303)
    set_session(answer, request.http, access.start_session(person))
    await request.site.record_login(person, request.http)
    return answer


async def begin(request: WebRequest) -> Response:
    """Lead the browser to the provider."""
    if (found := _oidc(request)) is None:
        return request.site.refuse(request.http, NO_PROVIDER)
    _, login = found
    from penstock.web.oidc import LOGIN_SECONDS, ProviderAway

    to = local_path(request.word("to"), request.root)
    try:
        leaving = await _call(login, lambda: login.leave(_back(request, login), to))
    except ProviderAway as error:
        return request.site.refuse(request.http, Refusal(503, f"Nobody can log in there: {error}."))
    answer = RedirectResponse(leaving.address, status_code=303)
    answer.set_cookie(
        _login_cookie(request),
        leaving.cookie,
        max_age=int(LOGIN_SECONDS),
        path=request.root or "/",
        secure=request.http.url.scheme == "https",
        httponly=True,
        samesite="lax",  # the provider's page leads back here
    )
    return answer


async def back(request: WebRequest) -> Response:
    """The provider has sent the browser back, with a code or a refusal."""
    if (found := _oidc(request)) is None:
        return request.site.refuse(request.http, NO_PROVIDER)
    access, login = found
    from penstock.web.oidc import NotLoggedIn, ProviderAway

    try:
        left = login.left_in(
            request.http.cookies.get(_login_cookie(request), ""), request.word("state")
        )
        if error := request.word("error"):
            raise NotLoggedIn(f"{login.host} says: {error} {request.word('error_description')}")
        code, address = request.word("code"), _back(request, login)
        person = await _call(login, lambda: login.come_back(left, code, address))
    except ProviderAway as error:
        return request.site.refuse(request.http, Refusal(503, f"Nobody can log in there: {error}."))
    except NotLoggedIn as error:
        await request.site.wrong_tokens.count(request.http)
        return request.site.refuse(request.http, Refusal(401, str(error)))
    # A redirect would still count as led here by the provider's page, and so without our cookie.
    html = request.site.rendered("login_done.html", request.http, name=person.name, to=left.to)
    answer = HTMLResponse(html)
    set_session(answer, request.http, access.start_session(person))
    answer.delete_cookie(_login_cookie(request), path=request.root or "/")
    await request.site.record_login(person, request.http)
    return answer


async def _call(login: OidcLogin, call: Callable[[], T]) -> T:
    """Ask the provider on a thread; bounded, since anybody may begin a login."""
    from penstock.web.oidc import ProviderAway

    if login.calls >= MOST_LOGINS:
        raise ProviderAway("too many logins are under way, try again")
    login.calls += 1
    try:
        return await asyncio.to_thread(call)
    finally:
        login.calls -= 1


def _oidc(request: WebRequest) -> tuple[Tokens, OidcLogin] | None:
    """The provider at which people log in here, if there is one."""
    access = request.site.access
    if isinstance(access, Tokens) and access.oidc is not None:
        return access, access.oidc
    return None


def _back(request: WebRequest, login: OidcLogin) -> str:
    """The address to which the provider sends the browser."""
    own = (
        login.settings.address
        or f"{request.http.url.scheme}://{request.http.url.netloc}{request.root}"
    )
    return f"{own}/oidc/back"


def _login_cookie(request: WebRequest) -> str:
    return f"{cookie_name(request.http)}-login"


def leave(request: WebRequest) -> Response:
    if isinstance(request.site.access, Tokens):
        request.site.access.end_session(request.http)
    return request.go("/")
