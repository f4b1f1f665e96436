"""The door of the dashboard: nothing gets to a route before it has passed here.

    host known? --> from our own pages? --> who is it? --> body small enough? --> routes

Who is not known gets 401, for whatever path, method or stream, but for the exact paths that the
routes declare as open to anybody. Every answer leaves with the headers that tell browsers to run
nothing and load nothing that is not ours.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.operate.roles import Person, Role
from penstock.web.access import Access, Tokens, cookie_name

MOST_BODY = 1024 * 1024
MOST_TARGET = 8192  # of path and query
SAFE = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{0,5})?", re.ASCII)
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "x-content-type-options": "nosniff",
    # Not no-referrer: with that, browsers hide from us, too, where a form was sent from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(NamedTuple):
    """Why a request goes no further."""

    status: int
    sentence: str


Refuse = Callable[[Request, Refusal], Response]


class Guard:
    """ASGI middleware; `open_paths` are those that need nobody to be known."""

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
    ) -> None:
        self._app = app
        self._access = access
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._open = frozenset(open_paths)
        self._prefix = prefix
        self._highest = highest
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        scope = dict(scope)
        if self._prefix and not scope.get("root_path", "").startswith(self._prefix):
            scope["root_path"] = self._prefix + scope.get("root_path", "")
        request = Request(scope, receive)
        send = _with_headers(send)
        answer = await self._stopped(request)
        if answer is None:
            counted = _Counted(receive)
            await self._app(scope, counted.receive, send)
        else:
            await answer(scope, receive, send)

    async def _stopped(self, request: Request) -> Response | None:
        """The answer to a request that goes no further; None lets it through."""
        wrong = self._wrong_host(request) or _wrong_origin(request) or _wrong_size(request)
        if wrong is not None:
            return self._refuse(request, wrong)
        if path_of(request.scope) in self._open:
            return None
        if (entered := self._entering(request)) is not None:
            return entered
        person = self._access(request)
        if inspect.isawaitable(person):
            person = await person
        if not isinstance(person, Person) or person.role < Role.VIEW:
            return self._refuse(request, Refusal(401, "Who is it? This needs a token."))
        request.scope["penstock.person"] = person.at_most(self._highest)
        return None

    def _wrong_host(self, request: Request) -> Refusal | None:
        hosts = request.headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            return Refusal(400, "a request names one host, and its port")
        if self._hosts is None or name in self._hosts:
            return None
        return Refusal(
            421,
            f"This dashboard does not answer to the host {name!r}: start it with "
            "--host-name, or ask for one of its own names.",
        )

    def _entering(self, request: Request) -> Response | None:
        """Exchange a token in the address for a cookie, and go on without it there."""
        if not isinstance(self._access, Tokens) or request.method != "GET":
            return None
        given = parse_qsl(request.url.query, keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if not tokens:
            return None
        person = self._access.admitted(tokens[-1])
        if person is None:
            return self._refuse(request, Refusal(401, "That token is not one of this dashboard."))
        rest = urlencode([(name, value) for name, value in given if name != "token"])
        root = request.scope.get("root_path", "")
        target = f"{root}{path_of(request.scope)}" + (f"?{rest}" if rest else "")
        answer = RedirectResponse(local(target, root), status_code=303)
        set_session(answer, request, self._access.enter(person))
        return answer


def person_in(scope: Scope) -> Person | None:
    """Whom the guard let in; None on a path that is open to anybody."""
    return scope.get("penstock.person")


def path_of(scope: Scope) -> str:
    """The path below where the dashboard is mounted."""
    path, root = scope["path"], scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


def local(target: str, root: str) -> str:
    """The target, if it is a page here; else the first page. Never another host."""
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
    """The name in a Host header, without its port; None of what is not a name and a port."""
    match = _HOST.fullmatch(host)
    return None if match is None else (match["six"] or match["name"]).lower()


def _wrong_origin(request: Request) -> Refusal | None:
    """Whether a request that changes something was sent by a page that is not ours.

    Browsers say so, in one way or the other; programs that are none must bring a token with it.
    """
    if request.method in SAFE:
        return None
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return Refusal(403, f"This was sent by another site's page ({site}).")
    if origin is not None:
        scheme, _, host = origin.partition("://")
        # Behind a proxy we may be asked by http for what the browser has by https; never the other
        # way round.
        ours = {"https", request.scope["scheme"]}
        if scheme not in ours or host.lower() != request.headers.get("host", "").lower():
            return Refusal(403, "This was sent by another site's page.")
    elif site is None and "authorization" not in request.headers:
        return Refusal(401, "Say who it is with Authorization: Bearer TOKEN.")
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
    """More body than was announced, or than is allowed."""


class _Counted:
    """Receives a body, and no more of it than is allowed; chunks announce no length."""

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
