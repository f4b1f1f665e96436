"""Checks that every request passes before it reaches a route.

    host known? --> from our own pages? --> body small enough? --> who is it? --> routes

An unknown caller gets 401 for every path, method and stream, except for the exact paths that the
routes declare open to anybody. Every answer carries headers that make browsers load and run only
the dashboard's own files.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.operate.roles import Person, Role
from penstock.web.access import Access, Tokens, cookie_name
from penstock.web.wrong_tokens import WrongTokens

MOST_BODY = 1024 * 1024
MOST_TARGET = 8192  # of path and query
WRONG_TOKEN = "This token is not valid here."  # noqa: S105  a sentence
SAFE = frozenset({"GET", "HEAD"})
MOST_OF_A_LOGIN = 24  # requests of one person at a time, streams included
_PERSON = "penstock.person"
# `same-origin`: a page of this dashboard. No header: an old browser, or plain HTTP off loopback.
_TYPED = frozenset({"none", "same-origin"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{0,5})?", re.ASCII)
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "x-content-type-options": "nosniff",
    # Not no-referrer: then browsers would send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(NamedTuple):
    """The answer to a request that is not let through."""

    status: int
    sentence: str


class Confirmation(NamedTuple):
    """Who would be logged in, with which token or ticket, and where the page leads then."""

    person: Person
    token: str
    to: str


Refuse = Callable[[Request, Refusal], Response]
Confirm = Callable[[Request, Confirmation], Response]


class Guard:
    """ASGI middleware; `open_paths` need no token."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        hosts: Collection[str] | None,
        open_paths: Collection[str],
        prefix: str,
        highest: Role,
        refuse: Refuse,
        confirm: Confirm,
        wrong_tokens: WrongTokens,
        logged_in: Callable[[Person, Request], Awaitable[None]],
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._open = frozenset(open_paths)
        self._prefix = prefix
        self._highest = highest
        self._refuse = refuse
        self._confirm = confirm
        self._wrong_tokens = wrong_tokens
        self._logged_in = logged_in
        self._in_progress: Counter[str] = Counter()  # requests by the person's name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        outer, scope = scope, dict(scope)
        if self._prefix and not scope.get("root_path", "").startswith(self._prefix):
            scope["root_path"] = self._prefix + scope.get("root_path", "")
        request = Request(scope, receive)
        send = _with_headers(send)
        answer = await self._refusal(request)
        if answer is not None:
            await answer(scope, receive, send)
            return
        person = person_in(scope)
        if person is None:
            await self._app(scope, _LimitedBody(receive).receive, send)
            return
        # For the server: `connection.TimedConnection` does not cut this one to make room.
        outer[_PERSON] = person
        self._in_progress[person.name] += 1
        try:
            await self._app(scope, _LimitedBody(receive).receive, send)
        finally:
            self._in_progress[person.name] -= 1
            if not self._in_progress[person.name]:
                del self._in_progress[person.name]

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not let through; None lets it through."""
        wrong = self._wrong_host(request) or _wrong_origin(request) or _wrong_size(request)
        if wrong is not None:
            return self._refuse(request, wrong)
        if path_of(request.scope) in self._open:
            return None
        if (login := await self._log_in_by_address(request)) is not None:
            return login
        person = self._access(request)
        if inspect.isawaitable(person):
            person = await person
        if not isinstance(person, Person) or person.role < Role.VIEW:
            if isinstance(self._access, Tokens) and "authorization" in request.headers:
                await self._wrong_tokens.count(request)
            return self._refuse(request, Refusal(401, "This needs a token."))
        if self._in_progress[person.name] >= MOST_OF_A_LOGIN:
            sentence = f"{person.name} has {MOST_OF_A_LOGIN} requests open here: end some of them."
            return self._refuse(request, Refusal(429, sentence))
        request.scope[_PERSON] = person.at_most(self._highest)
        return None

    def _wrong_host(self, request: Request) -> Refusal | None:
        hosts = request.headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            return Refusal(400, "A request must have exactly one Host header: name or name:port.")
        if self._hosts is None or name in self._hosts:
            return None
        return Refusal(
            421,
            f"This dashboard does not serve the host name {name!r}: start it with "
            f"--host-name {name}, or use one of the names that it serves.",
        )

    async def _log_in_by_address(self, request: Request) -> Response | None:
        """Exchange a token in the address for a cookie, and redirect to the page without it.

        Only if the address was typed, pasted or opened by a program, as browsers say. A link on
        another site's page could log people in as somebody else (login CSRF), so it only leads to a
        page that names the person, with a button.
        """
        if not isinstance(self._access, Tokens) or request.method != "GET":
            return None
        given = parse_qsl(request.url.query, keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if not tokens:
            return None
        typed = request.headers.get("sec-fetch-site") in _TYPED
        person = self._access.person_with_ticket_or_token(tokens[-1], use=typed)
        if person is None:
            await self._wrong_tokens.count(request)
            return self._refuse(request, Refusal(401, WRONG_TOKEN))
        rest = urlencode([(name, value) for name, value in given if name != "token"])
        root = request.scope.get("root_path", "")
        target = f"{root}{path_of(request.scope)}" + (f"?{rest}" if rest else "")
        if not typed:
            return self._confirm(request, Confirmation(person, tokens[-1], target))
        answer = RedirectResponse(local_path(target, root), status_code=303)
        set_session(answer, request, self._access.start_session(person))
        await self._logged_in(person, request)
        return answer


def person_in(scope: Scope) -> Person | None:
    """The person whom the guard let in; None on an open path."""
    return scope.get(_PERSON)


def path_of(scope: Scope) -> str:
    """The path below where the dashboard is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


def local_path(target: str, root: str) -> str:
    """The target if it is a path of this dashboard, else its first page; never another host."""
    inside = target.startswith(f"{root}/") and not target.startswith(("//", "/\\"))
    return target if inside and target.isprintable() and "\\" not in target else f"{root}/"


def set_session(answer: Response, request: Request, session: str) -> None:
    answer.set_cookie(
        cookie_name(request),
        session,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if it is malformed."""
    match = _HOST.fullmatch(host)
    return None if match is None else (match["six"] or match["name"]).lower()


def _wrong_origin(request: Request) -> Refusal | None:
    """CSRF check: refuse a request that changes something and comes from another site's page.

    Browsers send Sec-Fetch-Site or Origin; a program that sends neither must send its token.
    """
    if request.method in SAFE:
        return None
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return Refusal(403, f"This request comes from another site's page ({site}).")
    if origin is not None:
        scheme, _, host = origin.partition("://")
        # A proxy may end TLS: the browser has https, we see http. Never the other way round.
        ours = {"https", request.scope["scheme"]}
        if scheme not in ours or host.lower() != request.headers.get("host", "").lower():
            return Refusal(403, f"This request comes from another site's page ({origin[:100]}).")
    elif site is None and "authorization" not in request.headers:
        return Refusal(401, "Send the header Authorization: Bearer TOKEN.")
    return None


def _wrong_size(request: Request) -> Refusal | None:
    target = len(request.url.path) + len(request.scope.get("query_string", b""))
    if target > MOST_TARGET:
        return Refusal(414, f"An address has {MOST_TARGET:,} characters at most.")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > MOST_BODY:
        return Refusal(413, f"A body has {MOST_BODY:,} bytes at most.")
    return None


class TooLarge(Exception):
    """A body of more than `MOST_BODY` bytes."""


class _LimitedBody:
    """Counts the bytes of a body as they come in: chunked bodies announce no length."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            if self._bytes > MOST_BODY:
                raise TooLarge
        return message


def _with_headers(send: Send) -> Send:
    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sent
